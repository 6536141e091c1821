//! Models of devices for the simulated world and for emulated targets: hard disks, solid-state disks, networks, and
//! file systems that lock. They share nothing with the formulas by which layouts are planned.
