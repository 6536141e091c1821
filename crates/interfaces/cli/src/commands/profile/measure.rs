//! Runs the cases of a calibration on an unnamed file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_models::calibrate::{Case, Sample, Work};
use weft_store::aligned::AlignedBuf;

/// Result of the measurement.
pub struct Measured {
    /// Samples of the cases.
    pub samples: Vec<Sample>,
    /// Whether direct I/O was possible.
    pub is_direct: bool,
    /// Whether the time ran out before the last case.
    pub is_cut_short: bool,
    /// Capacity of the file system.
    pub capacity: ByteLen,
}

/// Two descriptors of one file: for direct and for buffered I/O.
struct Files {
    direct: File,
    buffered: File,
}

/// Runs all cases. `progress` is called before each one.
pub fn all(
    path: &Path,
    plan: &[Case],
    span: ByteLen,
    time: Nanos,
    mut begins: impl FnMut(&str),
) -> io::Result<Measured> {
    let (files, is_direct) = open(path)?;
    let capacity = capacity(&files.buffered)?;
    let end = Instant::now() + time.as_duration();
    let mut samples = Vec::with_capacity(plan.len());
    let mut is_cut_short = false;
    for (index, case) in plan.iter().enumerate() {
        begins(&case.name);
        let now = Instant::now();
        if now >= end {
            is_cut_short = true;
            break;
        }
        // Each case may take its share of the remaining time. The first one writes the whole file, which the others
        // need.
        let left = (plan.len() - index) as u32;
        let until = if index == 0 { end } else { now + 3 * (end - now) / left.max(3) };
        let sample = run(&files, case, span, until)?;
        is_cut_short |= index == 0 && sample.case.count < case.count;
        if sample.case.count > 0 {
            samples.push(sample);
        }
        // Dirty pages of one case must not become load for the next.
        files.buffered.sync_all()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Measured { samples, is_direct, is_cut_short, capacity })
}

/// Opens a file that disappears with its last descriptor.
fn open(path: &Path) -> io::Result<(Files, bool)> {
    let unnamed = |flags| {
        File::options().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | flags).open(path)
    };
    let named = || {
        let name = path.join(format!(".weft-profile.{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&name)?;
        std::fs::remove_file(&name)?;
        Ok::<_, io::Error>(file)
    };
    let buffered = unnamed(0).or_else(|_| named())?;
    // Open the same file again by its descriptor.
    let again = format!("/proc/self/fd/{}", buffered.as_raw_fd());
    let direct = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&again);
    let probe = direct.and_then(|direct| {
        direct.write_all_at(&AlignedBuf::zeroed(4096), 0)?;
        Ok(direct)
    });
    match probe {
        Ok(direct) => Ok((Files { direct, buffered }, true)),
        Err(_) => Ok((Files { direct: buffered.try_clone()?, buffered }, false)),
    }
}

fn capacity(file: &File) -> io::Result<ByteLen> {
    // SAFETY: statvfs is plain data; the descriptor is open, and the pointer is to a local.
    let found = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        if libc::fstatvfs(file.as_raw_fd(), &raw mut found) != 0 {
            return Err(io::Error::last_os_error());
        }
        found
    };
    Ok(ByteLen(found.f_blocks * found.f_frsize))
}

/// Runs one case with one thread per concurrent request.
fn run(files: &Files, case: &Case, span: ByteLen, until: Instant) -> io::Result<Sample> {
    let offsets: Vec<LocalOffset> = case.offsets(span).collect();
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let start = Instant::now();
    let worker = || -> io::Result<Vec<u64>> {
        let mut buf = AlignedBuf::zeroed(case.len.0 as usize);
        // Not only zeros, which some devices do not store.
        for (index, word) in buf.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(
                &(index as u64 ^ case.len.0).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(),
            );
        }
        let mut times = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&LocalOffset(at)) = offsets.get(index) else { return Ok(times) };
            if is_over.load(Ordering::Relaxed) || (index > 0 && Instant::now() >= until) {
                is_over.store(true, Ordering::Relaxed);
                return Ok(times);
            }
            let begun = Instant::now();
            match case.work {
                Work::Read(_) => files.direct.read_exact_at(&mut buf, at)?,
                Work::Write(_) => files.direct.write_all_at(&buf, at)?,
                Work::Copy => files.buffered.write_all_at(&buf, at)?,
                Work::Sync => {
                    files.buffered.write_all_at(&buf, at)?;
                    files.buffered.sync_data()?;
                }
            }
            times.push(begun.elapsed().as_nanos() as u64);
        }
    };
    let found: io::Result<Vec<Vec<u64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..case.depth).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect()
    });
    let elapsed = start.elapsed().as_nanos() as u64;
    let mut times: Vec<u64> = found?.into_iter().flatten().collect();
    times.sort_unstable();
    Ok(Sample { case: Case { count: times.len() as u32, ..case.clone() }, times, elapsed })
}
