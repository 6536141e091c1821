//! What a server keeps on its devices: datafiles, I/O modules and the metadata database.
