//! Workloads of the comparison.

/// A workload on disks of one profile.
pub struct Case {
    /// Name of the case.
    pub name: &'static str,
    /// Profile of the disks of targets and metadata.
    pub profile: &'static str,
    /// Description of the workload, with `SIZE` in place of its size.
    text: &'static str,
    /// The size, and the size of the quick form.
    size: (u64, u64),
}

impl Case {
    /// Returns the description of the workload.
    pub fn workload(&self, quick: bool) -> String {
        self.text.replace("SIZE", &if quick { self.size.1 } else { self.size.0 }.to_string())
    }
}

const fn mib(count: u64) -> u64 {
    count << 20
}

/// All cases.
pub const CASES: &[Case] = &[
    Case {
        name: "ior sequential read",
        profile: "ibridge-hdd",
        text: "kind = \"ior\"\nranks = 8\ntransfer = 262144\nper_rank = SIZE\naccess = \"read\"",
        size: (mib(32), mib(24)),
    },
    Case {
        name: "ior strided read, SSD",
        profile: "ibridge-ssd",
        text: "kind = \"ior\"\nranks = 8\ntransfer = 65536\nper_rank = SIZE\nlayout = \"strided\"\naccess = \"read\"",
        size: (mib(96), mib(32)),
    },
    Case {
        name: "ior random read",
        profile: "ibridge-hdd",
        text: "kind = \"ior\"\nranks = 8\ntransfer = 65536\nper_rank = SIZE\norder = \"random\"\naccess = \"read\"",
        size: (mib(12), mib(3)),
    },
    Case {
        name: "ior sequential write and sync",
        profile: "hdd-7200",
        text: "kind = \"ior\"\nranks = 8\ntransfer = 262144\nper_rank = SIZE\naccess = \"write\"\nsync = \"end\"",
        size: (mib(48), mib(24)),
    },
    Case {
        name: "ior random write, sync each",
        profile: "hdd-7200",
        text: "kind = \"ior\"\nranks = 8\ntransfer = 65536\nper_rank = SIZE\norder = \"random\"\naccess = \"write\"\n\
               sync = \"each\"",
        size: (mib(2), mib(1)),
    },
    Case {
        name: "mpi-io-test 65 KiB read, SSD",
        profile: "ibridge-ssd",
        text: "kind = \"mpi-io-test\"\nranks = 8\nsize = 66560\ntotal = SIZE\naccess = \"read\"",
        size: (mib(768), mib(256)),
    },
    Case {
        name: "mpi-io-test 65 KiB write and sync",
        profile: "ceda-hdd",
        text: "kind = \"mpi-io-test\"\nranks = 8\nsize = 66560\ntotal = SIZE\naccess = \"write\"\nsync = \"end\"",
        size: (mib(192), mib(96)),
    },
    Case {
        name: "unaligned writes beside random reads",
        profile: "hdd-7200",
        text: "kind = \"mix\"\n[[parts]]\nworkload = { kind = \"mpi-io-test\", ranks = 4, size = 66560, total = SIZE, \
               access = \"write\", sync = \"end\" }\n[[parts]]\nworkload = { kind = \"ior\", ranks = 4, \
               transfer = 65536, per_rank = \"8 MiB\", order = \"random\", access = \"read\" }",
        size: (mib(64), mib(32)),
    },
    Case {
        name: "ior random read, SSD",
        profile: "ibridge-ssd",
        text: "kind = \"ior\"\nranks = 8\ntransfer = 65536\nper_rank = SIZE\norder = \"random\"\naccess = \"read\"",
        size: (mib(96), mib(32)),
    },
    Case {
        name: "mdtest, two processes",
        profile: "ceda-hdd",
        text: "kind = \"mdtest\"\nranks = 2\nfiles = SIZE\nphases = [\"create\", \"stat\", \"remove\"]",
        size: (100, 30),
    },
];
