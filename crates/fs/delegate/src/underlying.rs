//! The file system behind the delegates.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_client::{Client, Error, FileHandle, HandleToken, HostFile, HostOrWeftFile, Result};
use weft_core::Nanos;
use weft_core::delegates::ownership::FileNumber;
use weft_env::{Dir, Env, File, OpenMode};
use weft_wire::Errno;
use weft_wire::delegate::FileSource;
use weft_wire::meta::Event;

/// Time between two attempts to reach the metadata service.
const PAUSE: Nanos = Nanos::from_ms(250);

/// Opens the files that ranks register.
pub trait Underlying<E: Env>: Send + Sync + 'static {
    /// An open file.
    type File: FileHandle;

    /// Opens a file that a rank has open. `attached` is the descriptor that came with [`FileSource::Descriptor`]; `name`
    /// is for messages.
    ///
    /// # Errors
    /// Errors of open(2); `ESTALE` if the path leads to another file.
    fn open(
        &self,
        source: &FileSource,
        attached: Option<E::File>,
        write: bool,
        name: &[u8],
    ) -> impl Future<Output = Result<Self::File>>;

    /// Whether pages of the file may be cached, apart from recalls that have not been handled.
    fn may_cache(&self, _file: &Self::File) -> bool {
        true
    }

    /// Waits a short time for opens by programs outside of the job, and acknowledges those up to number `done`.
    fn recalls(&self, _done: u64) -> impl Future<Output = Recalls> {
        std::future::ready(Recalls::Never)
    }
}

/// An open of a file by a program outside of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recall {
    /// Number, to acknowledge it.
    pub number: u64,
    /// File.
    pub file: FileNumber,
}

/// Opens of files by programs outside of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recalls {
    /// The file system does not report any.
    Never,
    /// None to several.
    Of(Vec<Recall>),
    /// Some may have been missed: [`Underlying::may_cache`] has the state of each file. Numbers begin again.
    Missed,
}

/// Files of the host and of Weft.
pub struct HostOrWeft<E: Env> {
    env: E,
    weft: Option<Client<E>>,
    /// Whether the metadata service can report opens outside of the job.
    is_listening: AtomicBool,
}

impl<E: Env> HostOrWeft<E> {
    /// Serves files of the host, and files of Weft if there is a client.
    pub fn new(env: E, weft: Option<Client<E>>) -> Self {
        Self { env, weft, is_listening: AtomicBool::new(false) }
    }

    /// Opens a path of this host, and returns the inode number, too.
    async fn open_path(&self, path: &Path, write: bool) -> io::Result<(E::File, u64)> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mode = if write { OpenMode::WRITE } else { OpenMode::READ };
        let file = self.env.dir(folder).await?.open(name, mode).await?;
        let inode = file.meta().await?.inode;
        Ok((file, inode))
    }
}

impl<E: Env> Underlying<E> for HostOrWeft<E> {
    type File = HostOrWeftFile<E>;

    async fn open(
        &self,
        source: &FileSource,
        attached: Option<E::File>,
        write: bool,
        name: &[u8],
    ) -> Result<HostOrWeftFile<E>> {
        let refused = |errno, why| Error::Misuse { errno, why };
        match source {
            FileSource::Descriptor => {
                let file =
                    attached.ok_or(refused(Errno::EBADF, "the descriptor of the file did not arrive"))?;
                Ok(HostOrWeftFile::Host(HostFile::new(file, name.to_vec())))
            }
            FileSource::Path { path, inode } => {
                let path = Path::new(OsStr::from_bytes(path));
                let opened = self.open_path(path, write).await;
                let (file, found) = opened.map_err(|error| HostFile::<E>::failure(name, &error))?;
                if found != *inode {
                    const OTHER: &str = "the path leads to another file on the delegate's host: mount the same file \
                                         system at the same place on all hosts";
                    return Err(refused(Errno::ESTALE, OTHER));
                }
                Ok(HostOrWeftFile::Host(HostFile::new(file, name.to_vec())))
            }
            FileSource::Token(token) => {
                const NO_CLUSTER: &str = "the delegates were started without a cluster file";
                let weft = self.weft.as_ref().ok_or(refused(Errno::ENXIO, NO_CLUSTER))?;
                let token = HandleToken::decode(token).ok_or(refused(Errno::EPROTO, "a damaged token"))?;
                // Before the events arrive, no page may be cached.
                let file = match self.is_listening.load(Ordering::SeqCst) || weft.listen().await.is_ok() {
                    true => weft.adopt_to_cache(&token).await?,
                    false => weft.adopt(&token).await?,
                };
                Ok(HostOrWeftFile::Weft(Box::new(file)))
            }
        }
    }

    fn may_cache(&self, file: &HostOrWeftFile<E>) -> bool {
        match file {
            HostOrWeftFile::Host(_) => true,
            HostOrWeftFile::Weft(file) => file.receives_invalidations(),
        }
    }

    async fn recalls(&self, done: u64) -> Recalls {
        let Some(weft) = &self.weft else { return Recalls::Never };
        if !self.is_listening.load(Ordering::SeqCst) {
            match weft.listen().await {
                Ok(()) => self.is_listening.store(true, Ordering::SeqCst),
                Err(_) => self.env.sleep(PAUSE).await,
            }
            return Recalls::Missed;
        }
        match weft.wait_events(done).await {
            Ok(events) => {
                let recall =
                    |event: Event| Recall { number: event.number, file: FileNumber::of_weft(event.file) };
                Recalls::Of(events.into_iter().map(recall).collect())
            }
            Err(_) => {
                self.is_listening.store(false, Ordering::SeqCst);
                Recalls::Missed
            }
        }
    }
}
