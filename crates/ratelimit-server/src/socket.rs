//! Listening sockets: TCP, and unix sockets with their file.

use std::{
    fmt, fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process,
};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::config::ListenAddr;

/// The mode of the file of a unix socket: its owner and its group can connect.
const SOCKET_MODE: u32 = 0o660;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

/// A connection that was accepted.
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Socket {
    /// Listens on an address.
    pub(crate) async fn bind(addr: &ListenAddr) -> io::Result<Socket> {
        match addr {
            ListenAddr::Tcp(addr) => TcpListener::bind(addr).await.map(Socket::Tcp),
            ListenAddr::Unix(path) => UnixSocket::bind(path).map(Socket::Unix),
        }
    }

    /// The address, with the port that was chosen for port 0.
    pub(crate) fn local_addr(&self) -> io::Result<ListenAddr> {
        match self {
            Socket::Tcp(socket) => socket.local_addr().map(ListenAddr::Tcp),
            Socket::Unix(socket) => Ok(ListenAddr::Unix(socket.path.clone())),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                // An error means that the connection is already closed; serving it fails next.
                let _ = stream.set_nodelay(true);
                Ok(Accepted::Tcp(stream, peer))
            }
            Socket::Unix(socket) => {
                let (stream, _) = socket.listener.accept().await?;
                Ok(Accepted::Unix(stream))
            }
        }
    }
}

/// A unix socket. Dropping it removes its file.
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, which another server may have replaced.
    file: (u64, u64),
}

impl UnixSocket {
    /// Listens on a path. A file that a server left behind is replaced; one that a process listens on is an error.
    ///
    /// The file gets its mode before it gets its name, so no client is refused in between.
    fn bind(path: &Path) -> io::Result<UnixSocket> {
        check_unused(path)?;
        let mut unnamed = path.as_os_str().to_owned();
        unnamed.push(format!(".{}", process::id()));
        let unnamed = PathBuf::from(unnamed);
        // In a container the process that was killed often had the same number.
        if check_unused(&unnamed).is_ok() && unnamed.exists() {
            fs::remove_file(&unnamed)?;
        }
        let listener = UnixListener::bind(&unnamed)?;
        let named = fs::set_permissions(&unnamed, fs::Permissions::from_mode(SOCKET_MODE))
            .and_then(|()| fs::metadata(&unnamed))
            .and_then(|metadata| fs::rename(&unnamed, path).map(|()| metadata));
        match named {
            Ok(metadata) => Ok(UnixSocket {
                listener,
                path: path.to_owned(),
                file: (metadata.dev(), metadata.ino()),
            }),
            Err(why) => {
                // The first error is the one to report.
                let _ = fs::remove_file(&unnamed);
                Err(why)
            }
        }
    }
}

/// Checks that there is no file, or the socket of a process that has ended.
fn check_unused(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
    };
    let in_use = |why| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    if !metadata.file_type().is_socket() {
        return in_use("the file is not a socket");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => in_use("another process listens on it"),
        Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(why) => Err(why),
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let is_own = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(is_own) {
            // The next server replaces a file that cannot be removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl fmt::Debug for UnixSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnixSocket({})", self.path.display())
    }
}
