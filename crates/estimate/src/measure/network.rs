//! The way between this host and each server: what an empty message takes, and what bytes add in each direction.

use super::fit::{FittedLine, Point, Stream, short};
use serde::{Deserialize, Serialize};
use weft_client::{Client, Error};
use weft_core::{Nanos, ServerId};
use weft_env::Env;

/// Lengths of messages, bytes.
const LENGTHS: [u32; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Messages of each length at most.
const COUNT_MAX: usize = 2000;
/// And at least.
const COUNT_MIN: usize = 12;
/// Messages before the first that counts: connections have been made and memory is warm.
const WARM: usize = 5;

/// The way to a server and back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// The server's name.
    pub server: String,
    /// One message without payload, one way, microseconds; the paper's e.
    pub message_us: f64,
    /// Standard error of that.
    pub message_error_us: f64,
    /// Messages with payloads to the server, there and back.
    pub send: FittedLine,
    /// Messages with payloads from it.
    pub receive: FittedLine,
    /// What all lengths took.
    pub points: Vec<Point>,
}

impl Link {
    /// Messages that were sent.
    pub fn samples(&self) -> u64 {
        self.points.iter().map(|point| point.count).sum()
    }

    /// Bytes of the slower direction, 10^6 per second.
    pub fn mb_s(&self) -> f64 {
        self.send.mb_s.min(self.receive.mb_s)
    }
}

/// Measures the way to a server for about so long.
///
/// # Errors
/// `Unreachable`.
pub async fn link<E: Env>(
    client: &Client<E>,
    server: ServerId,
    name: &str,
    time: Nanos,
) -> Result<Link, Error> {
    let payload = vec![0; *LENGTHS.last().expect("some") as usize];
    let cases = 1 + 2 * LENGTHS.len() as u64;
    let ask = |(sent, received): (u32, u32), time: Nanos| {
        let payload = &payload[..sent as usize];
        async move {
            let mut times = Vec::new();
            for _ in 0..WARM {
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
    let empty = point("empty message".to_owned(), 0, ask((0, 0), each).await?);
    let (mut send, mut receive) = (vec![empty.clone()], vec![empty.clone()]);
    for len in LENGTHS {
        let kib = len >> 10;
        send.push(point(format!("{kib} KiB to the server"), len, ask((len, 0), each).await?));
        receive.push(point(format!("{kib} KiB from the server"), len, ask((0, len), each).await?));
    }
    let line = |points: &[Point]| FittedLine::through(&points.iter().collect::<Vec<_>>());
    Ok(Link {
        server: name.to_owned(),
        message_us: short(empty.ns_each / 2e3),
        message_error_us: short(empty.ns_error / 2e3),
        send: line(&send),
        receive: line(&receive),
        points: send.into_iter().chain(receive.into_iter().skip(1)).collect(),
    })
}
