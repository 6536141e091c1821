//! File handles, splitting, routing and exchange with the servers.
