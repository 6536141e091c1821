//! PSA's tables III and IV: the cost of a request in network and storage time.
//!
//! | symbol (Table II) | here | unit |
//! | --- | --- | --- |
//! | p, client processes | [`CostParameters::processes`] | |
//! | c, processes per node | [`CostParameters::per_node`] | |
//! | e, establishing a connection | [`CostParameters::connect_ns`] | ns |
//! | t, network transfer | [`CostParameters::byte_ns`] | ns per byte |
//! | m, n, HServers and SServers | [`Servers::count`] | |
//! | h, s, stripe sizes | [`Servers::bytes`] | bytes |
//! | alpha, startup of an operation | [`Servers::startup_ns`] | ns |
//! | beta, storage transfer | [`Servers::byte_ns`] | ns per byte |
//!
//! | cost | condition | Table III, on m + n servers | Table IV, on m HServers |
//! | --- | --- | --- | --- |
//! | T_E | few processes | p <= c(m+n): c(m+n)e | p <= cm: cme |
//! | T_E | else | pe | pe |
//! | T_X | | max(cSt, pht, pst) | max(cSt, pSt/m) |
//! | T_S + T_T | | p max(alpha_h + h beta_h, alpha_s + s beta_s) | p alpha_h + p h beta_h |
//!
//! The paper has two kinds of server; the formulas here accept any number. Table II describes alpha_s as the startup
//! time "on HServer", which is a misprint for SServer.

/// Parameters that do not depend on the layout.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostParameters {
    /// Client processes, p.
    pub processes: f64,
    /// Processes per node, c.
    pub per_node: f64,
    /// Time to establish a connection, e.
    pub connect_ns: f64,
    /// Network time per byte, t.
    pub byte_ns: f64,
}

/// The servers of one kind, and the bytes that a request transfers on each.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Servers {
    /// Number of servers.
    pub count: f64,
    /// Startup time of an operation, alpha.
    pub startup_ns: f64,
    /// Storage time per byte, beta.
    pub byte_ns: f64,
    /// Bytes of the request on each server.
    pub bytes: f64,
}

/// Cost of a request, nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// T_E, establishing connections.
    pub establish: f64,
    /// T_X, network transfer.
    pub transfer: f64,
    /// T_S + T_T, startup and storage transfer.
    pub storage: f64,
}

impl Cost {
    /// Sum of all terms.
    pub fn total(self) -> f64 {
        self.establish + self.transfer + self.storage
    }
}

/// Table III: a request of `size` bytes (S) on servers of several kinds.
pub fn table_iii(parameters: &CostParameters, size: f64, servers: &[Servers]) -> Cost {
    let CostParameters { processes: p, per_node: c, connect_ns: e, byte_ns: t } = *parameters;
    let all: f64 = servers.iter().map(|kind| kind.count).sum();
    let most = |of: &dyn Fn(&Servers) -> f64| servers.iter().map(of).fold(0.0, f64::max);
    Cost {
        establish: if p <= c * all { c * all * e } else { p * e },
        transfer: (c * size * t).max(most(&|kind| p * kind.bytes * t)),
        storage: p * most(&|kind| kind.startup_ns + kind.bytes * kind.byte_ns),
    }
}

/// Table IV: a request of `size` bytes on HServers alone, S/m bytes on each.
pub fn table_iv(parameters: &CostParameters, size: f64, servers: &Servers) -> Cost {
    let CostParameters { processes: p, per_node: c, connect_ns: e, byte_ns: t } = *parameters;
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

    const SETTING: CostParameters =
        CostParameters { processes: 16.0, per_node: 2.0, connect_ns: 30e3, byte_ns: 8.5 };
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
        // p = 16 <= c(m+n) = 16, so T_E = c(m+n)e.
        assert_eq!(cost.establish, 16.0 * 30e3);
        // T_X: cSt has 2 x 512 KiB, and pst has 16 x 100 KiB.
        assert_eq!(cost.transfer, 1600.0 * KIB * 8.5);
        assert_eq!(cost.storage, 16.0 * (10e6 + 28.0 * KIB * 13.0));
        let more = CostParameters { processes: 17.0, ..SETTING };
        assert_eq!(table_iii(&more, 512.0 * KIB, &[hdd(KIB), ssd(KIB)]).establish, 17.0 * 30e3);
        // Here cSt is greater.
        assert_eq!(table_iii(&SETTING, 512.0 * KIB, &[hdd(KIB), ssd(KIB)]).transfer, 1024.0 * KIB * 8.5);
    }

    #[test]
    fn table_iv_is_table_iii_of_one_kind() {
        for processes in [1.0, 8.0, 9.0, 64.0] {
            for size in [4.0, 64.0, 512.0, 4096.0] {
                let parameters = CostParameters { processes, ..SETTING };
                let alone = hdd(size * KIB / 4.0);
                let (iv, iii) =
                    (table_iv(&parameters, size * KIB, &alone), table_iii(&parameters, size * KIB, &[alone]));
                assert!((iv.total() - iii.total()).abs() < 1e-6 * iv.total(), "{iv:?} {iii:?}");
                assert_eq!(iv.establish, iii.establish);
            }
        }
    }
}
