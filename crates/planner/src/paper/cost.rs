//! PSA's tables III and IV: what a request costs, by network and storage.
//!
//! | symbol | here | unit |
//! | --- | --- | --- |
//! | p | [`Setting::processes`] | |
//! | c | [`Setting::per_node`] | |
//! | e | [`Setting::connect_ns`] | ns |
//! | t | [`Setting::byte_ns`] | ns per byte |
//! | m, n | [`Servers::count`] | |
//! | h, s | [`Servers::bytes`] | bytes |
//! | alpha, beta | [`Servers::startup_ns`], [`Servers::byte_ns`] | ns, ns per byte |
//!
//! The paper has two kinds of server; any number of kinds costs by the same formulas. Table II calls the startup time of
//! the SServer that of the HServer: a slip of the pen.

/// What does not depend on the layout.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setting {
    /// Client processes, p.
    pub processes: f64,
    /// Processes on a node, c.
    pub per_node: f64,
    /// Establishing a connection, e.
    pub connect_ns: f64,
    /// Sending a byte, t.
    pub byte_ns: f64,
}

/// Servers of a kind, and what a request asks of each.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Servers {
    /// How many.
    pub count: f64,
    /// Startup of an operation, alpha.
    pub startup_ns: f64,
    /// A byte from or to the medium, beta.
    pub byte_ns: f64,
    /// Bytes of the request on each.
    pub bytes: f64,
}

/// A request's cost, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// T_E.
    pub establish: f64,
    /// T_X.
    pub transfer: f64,
    /// T_S + T_T.
    pub storage: f64,
}

impl Cost {
    /// All of it.
    pub fn total(self) -> f64 {
        self.establish + self.transfer + self.storage
    }
}

/// Table III: a request of `size` bytes (S) on servers of several kinds.
pub fn table_iii(setting: &Setting, size: f64, servers: &[Servers]) -> Cost {
    let Setting { processes: p, per_node: c, connect_ns: e, byte_ns: t } = *setting;
    let all: f64 = servers.iter().map(|kind| kind.count).sum();
    let most = |of: &dyn Fn(&Servers) -> f64| servers.iter().map(of).fold(0.0, f64::max);
    Cost {
        establish: if p <= c * all { c * all * e } else { p * e },
        transfer: (c * size * t).max(most(&|kind| p * kind.bytes * t)),
        storage: p * most(&|kind| kind.startup_ns + kind.bytes * kind.byte_ns),
    }
}

/// Table IV: a request of `size` bytes on HServers alone, S/m bytes on each.
pub fn table_iv(setting: &Setting, size: f64, servers: &Servers) -> Cost {
    let Setting { processes: p, per_node: c, connect_ns: e, byte_ns: t } = *setting;
    let m = servers.count;
    Cost {
        establish: if p <= c * m { c * m * e } else { p * e },
        transfer: (c * size * t).max(p * size * t / m),
        storage: p * servers.startup_ns + p * servers.bytes * servers.byte_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting { processes: 16.0, per_node: 2.0, connect_ns: 30e3, byte_ns: 8.5 };
    const KIB: f64 = 1024.0;

    fn hdd(bytes: f64) -> Servers {
        Servers { count: 4.0, startup_ns: 10e6, byte_ns: 13.0, bytes }
    }

    fn ssd(bytes: f64) -> Servers {
        Servers { count: 4.0, startup_ns: 0.1e6, byte_ns: 2.0, bytes }
    }

    #[test]
    fn table_iii_by_hand() {
        let cost = table_iii(&SETTING, 512.0 * KIB, &[hdd(28.0 * KIB), ssd(100.0 * KIB)]);
        // p = 16 <= c (m + n) = 16: c (m + n) e.
        assert_eq!(cost.establish, 16.0 * 30e3);
        // c S t = 2 x 512 KiB against p s t = 16 x 100 KiB.
        assert_eq!(cost.transfer, 1600.0 * KIB * 8.5);
        assert_eq!(cost.storage, 16.0 * (10e6 + 28.0 * KIB * 13.0));
        let more = Setting { processes: 17.0, ..SETTING };
        assert_eq!(table_iii(&more, 512.0 * KIB, &[hdd(KIB), ssd(KIB)]).establish, 17.0 * 30e3);
        // c S t is the greater one.
        assert_eq!(table_iii(&SETTING, 512.0 * KIB, &[hdd(KIB), ssd(KIB)]).transfer, 1024.0 * KIB * 8.5);
    }

    #[test]
    fn table_iv_is_table_iii_of_one_kind() {
        for processes in [1.0, 8.0, 9.0, 64.0] {
            for size in [4.0, 64.0, 512.0, 4096.0] {
                let setting = Setting { processes, ..SETTING };
                let alone = hdd(size * KIB / 4.0);
                let (iv, iii) =
                    (table_iv(&setting, size * KIB, &alone), table_iii(&setting, size * KIB, &[alone]));
                assert!((iv.total() - iii.total()).abs() < 1e-6 * iv.total(), "{iv:?} {iii:?}");
                assert_eq!(iv.establish, iii.establish);
            }
        }
    }
}
