//! Measures how many requests per second the processors of a host serve, if clients and servers run on the same host.

use super::concurrent::concurrently;
use super::fit::{relative_deviation, rounded, typical};
use weft_client::{Client, Error};
use weft_core::{Nanos, ServerId};
use weft_env::Env;
use weft_planner::figures::Processor;

/// Clients per processor. A client waits for its reply while other clients keep the processors busy.
const CLIENTS_PER_CORE: u32 = 4;
/// Maximum number of clients.
const CLIENTS_MAX: u32 = 64;
/// Number of equal intervals whose rates are compared. The first warms up and does not count.
const INTERVALS: usize = 6;
/// Maximum relative deviation of the rates. Above it, other programs decide what the processors do.
const DEVIATION_MAX: f64 = 0.3;
/// Payload of a reply, bytes: the shortest read.
const REPLY_LEN: u32 = 1;

/// Measures the messages per second of the `cores` processors on which this client and all `servers` run. `None` if the
/// rate was not steady, because other programs used the processors.
///
/// # Errors
/// `Unreachable` if a server does not answer.
///
/// # Panics
/// If there are no servers.
pub async fn processor<E: Env>(
    client: &Client<E>,
    servers: &[ServerId],
    cores: u32,
    time: Nanos,
) -> Result<Option<Processor>, Error> {
    assert!(!servers.is_empty(), "a server answers");
    let begin = client.env().now();
    let interval = (time.0 / INTERVALS as u64).max(1);
    let (shared, servers) = (client.clone(), servers.to_vec());
    let counts = concurrently(client.env(), (cores * CLIENTS_PER_CORE).min(CLIENTS_MAX), move |number| {
        let (client, servers) = (shared.clone(), servers.clone());
        async move {
            let mut counts = [0u64; INTERVALS];
            let mut next = number as usize;
            loop {
                client.echo(servers[next % servers.len()], &[], REPLY_LEN).await?;
                next += 1;
                let passed = client.env().now().saturating_sub(begin);
                match counts.get_mut((passed.0 / interval) as usize) {
                    Some(count) => *count += 1,
                    None => return Ok(counts),
                }
            }
        }
    })
    .await?;
    let rates: Vec<f64> = (1..INTERVALS)
        .map(|at| counts.iter().map(|counts| counts[at]).sum::<u64>() as f64 * 1e9 / interval as f64)
        .collect();
    Ok(steady(&rates).map(|rate| Processor { messages_per_s: rounded(rate), cores }))
}

/// The median of rates that agree.
fn steady(rates: &[f64]) -> Option<f64> {
    let is_steady = relative_deviation(rates).is_some_and(|deviation| deviation <= DEVIATION_MAX);
    typical(rates).filter(|rate| *rate > 0.0 && is_steady)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsteady_rate_is_no_figure() {
        assert_eq!(steady(&[90e3, 91e3, 89e3, 92e3, 20e3]), Some(90e3), "one interruption");
        assert_eq!(steady(&[90e3, 40e3, 60e3, 10e3, 80e3]), None);
        assert_eq!(steady(&[0.0; 5]), None);
    }
}
