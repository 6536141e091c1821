//! Measures the network between this host and a server: message latency, and transfer time in each direction.

use super::fit::{FittedLine, Point, Stream, rounded};
use serde::{Deserialize, Serialize};
use weft_client::{Client, Error};
use weft_core::{Nanos, ServerId};
use weft_env::Env;

/// Payload lengths, bytes.
const LENGTHS: [u32; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Maximum number of messages per length.
const COUNT_MAX: usize = 2000;
/// Minimum number of messages per length.
const COUNT_MIN: usize = 12;
/// Messages before the first measured one, which establish connections and warm caches.
const WARMUP_MESSAGES: usize = 5;

/// Network figures of one server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Name of the server.
    pub server: String,
    /// One-way time of a message without payload, microseconds; the paper's e.
    pub message_us: f64,
    /// Standard error of `message_us`.
    pub message_error_us: f64,
    /// Round trips with a payload to the server.
    pub send: FittedLine,
    /// Round trips with a payload from the server.
    pub receive: FittedLine,
    /// Times by payload length.
    pub points: Vec<Point>,
}

impl Link {
    /// Number of messages measured.
    pub fn samples(&self) -> u64 {
        self.points.iter().map(|point| point.count).sum()
    }

    /// Bandwidth of the slower direction, 10^6 bytes per second.
    pub fn mb_s(&self) -> f64 {
        self.send.mb_s.min(self.receive.mb_s)
    }
}

/// Measures the network to a server within about the given time. `None` if no line fits the times.
///
/// # Errors
/// `Unreachable` if the server does not answer.
pub async fn link<E: Env>(
    client: &Client<E>,
    server: ServerId,
    name: &str,
    time: Nanos,
) -> Result<Option<Link>, Error> {
    let payload = vec![0; *LENGTHS.last().expect("some") as usize];
    let cases = 1 + 2 * LENGTHS.len() as u64;
    let exchange = |(sent, received): (u32, u32), time: Nanos| {
        let payload = &payload[..sent as usize];
        async move {
            let mut times = Vec::new();
            for _ in 0..WARMUP_MESSAGES {
                client.echo(server, payload, received).await?;
            }
            let end = client.env().now().saturating_add(time);
            while times.len() < COUNT_MIN || (times.len() < COUNT_MAX && client.env().now() < end) {
                times.push(client.echo(server, payload, received).await?.0);
            }
            Ok::<_, Error>(Stream { elapsed: times.iter().sum(), times })
        }
    };
    let each = Nanos(time.0 / cases);
    let point = |name: String, len: u32, stream| Point::of_streams(name, len.into(), &[stream]);
    let empty = point("empty message".to_owned(), 0, exchange((0, 0), each).await?);
    let (mut send, mut receive) = (vec![empty.clone()], vec![empty.clone()]);
    for len in LENGTHS {
        let kib = len >> 10;
        send.push(point(format!("{kib} KiB to the server"), len, exchange((len, 0), each).await?));
        receive.push(point(format!("{kib} KiB from the server"), len, exchange((0, len), each).await?));
    }
    let line = |points: &[Point]| FittedLine::through(&points.iter().collect::<Vec<_>>());
    let (Some(to), Some(from)) = (line(&send), line(&receive)) else { return Ok(None) };
    Ok(Some(Link {
        server: name.to_owned(),
        message_us: rounded(empty.ns_each / 2e3),
        message_error_us: rounded(empty.ns_error / 2e3),
        send: to,
        receive: from,
        points: send.into_iter().chain(receive.into_iter().skip(1)).collect(),
    }))
}
