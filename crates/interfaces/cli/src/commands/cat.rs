//! `weft cat`.

use super::bytes;
use super::session::{Weft, why};
use crate::failure::Failure;
use clap::Args;
use std::io::{IoSliceMut, Write};
use std::path::PathBuf;
use weft_core::FileOffset;
use weft_env::real::block_on;
use weft_wire::meta::{LayoutSpec, OpenFlags};

/// Writes files to standard output.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  weft cat /weft/log.txt\n  weft cat a b | wc -c")]
pub struct Cat {
    /// The files
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Cat {
    /// Writes the files.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open_for_transfer(file)?;
        let mut failed = false;
        let mut buffer = vec![0; 8 << 20];
        for path in &self.paths {
            if let Err(failure) = write_out(&weft, weft.inside(path)?, &mut buffer) {
                errln!("{failure}");
                failed = true;
            }
        }
        Ok(u8::from(failed))
    }
}

fn write_out(weft: &Weft, inside: &str, buffer: &mut [u8]) -> Result<(), Failure> {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let spec = LayoutSpec::default();
    let open = weft.at(inside, true, |place| block_on(weft.client.open(place, flags, 0, &spec)))?;
    let mut at = 0;
    loop {
        let got = block_on(open.read_at(&mut [IoSliceMut::new(buffer)], FileOffset(at)))
            .map_err(|error| Failure::new(weft.shown(inside), why(&error)))?;
        if got == 0 {
            return Ok(());
        }
        std::io::stdout()
            .write_all(&buffer[..got])
            .map_err(|error| Failure::new("standard output", error))?;
        at += got as u64;
    }
}
