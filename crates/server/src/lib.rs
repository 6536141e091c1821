//! The data service and the metadata service.
