//! Listening sockets: TCP, and unix sockets with their file.

use std::{
    fmt, fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::timeout,
};

use crate::config::ListenAddr;

/// The mode of the file of a unix socket: its owner and its group can connect.
const SOCKET_MODE: u32 = 0o660;

/// How often the file of a unix socket is looked for while no client connects.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The time after which the system ends a TCP connection whose peer acknowledges no bytes, or takes none.
#[cfg(target_os = "linux")]
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

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
            ListenAddr::Unix(path) => UnixSocket::bind(path).await.map(Socket::Unix),
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
                // Without it a peer that never reads holds its connection for as long as it likes.
                #[cfg(target_os = "linux")]
                let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(SEND_TIMEOUT));
                Ok(Accepted::Tcp(stream, peer))
            }
            Socket::Unix(socket) => {
                let stream = socket.accept().await?;
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
    has_warned: AtomicBool,
}

impl UnixSocket {
    /// Listens on a path. A file that a server left behind is replaced; one that a process listens on is an error.
    ///
    /// The file gets its mode before it gets its name, so no client is refused in between.
    async fn bind(path: &Path) -> io::Result<UnixSocket> {
        check_unused(path).await?;
        let mut unnamed = path.as_os_str().to_owned();
        unnamed.push(format!(".{}", process::id()));
        let unnamed = PathBuf::from(unnamed);
        // In a container the process that was killed often had the same number.
        if check_unused(&unnamed).await.is_ok() && unnamed.exists() {
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
                has_warned: AtomicBool::new(false),
            }),
            Err(why) => {
                // The first error is the one to report.
                let _ = fs::remove_file(&unnamed);
                Err(why)
            }
        }
    }
}

impl UnixSocket {
    /// Accepts a connection. While there is none, a missing file is logged once: no client can connect then.
    async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            if let Ok(accepted) = timeout(FILE_CHECK_INTERVAL, self.listener.accept()).await {
                return accepted.map(|(stream, _)| stream);
            }
            if !self.has_file() && !self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    path = %self.path.display(),
                    "the file of the unix socket is gone or replaced: clients cannot connect until the server is restarted"
                );
            }
        }
    }

    /// Whether the path is still the file of this socket.
    fn has_file(&self) -> bool {
        let is_own = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.file;
        fs::symlink_metadata(&self.path).is_ok_and(is_own)
    }
}

/// Checks that there is no file, or the socket of a process that has ended.
///
/// A process that is stopped accepts nothing, so a connection that would have to wait is not waited for.
async fn check_unused(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
    };
    let in_use = |why| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    if !metadata.file_type().is_socket() {
        return in_use("the file is not a socket");
    }
    match UnixStream::connect(path).await {
        Ok(_) => in_use("another process listens on it"),
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
            in_use("another process listens on it")
        }
        Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(why) => Err(why),
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if self.has_file() {
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_system_ends_a_connection_whose_peer_takes_no_bytes() {
        let addr = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let socket = Socket::bind(&addr).await.unwrap();
        let ListenAddr::Tcp(addr) = socket.local_addr().unwrap() else {
            panic!("an address of TCP");
        };
        let _client = TcpStream::connect(addr).await.unwrap();

        let Accepted::Tcp(stream, _) = socket.accept().await.unwrap() else {
            panic!("a connection of TCP");
        };

        let timeout = socket2::SockRef::from(&stream).tcp_user_timeout();
        assert_eq!(timeout.unwrap(), Some(SEND_TIMEOUT));
    }

    #[tokio::test]
    async fn a_socket_whose_process_accepts_nothing_is_in_use() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("envoy.sock");
        let stopped = tokio::net::UnixSocket::new_stream().unwrap();
        stopped.bind(&path).unwrap();
        let _stopped = stopped.listen(1).unwrap();
        let mut waiting = Vec::new();
        while let Ok(connection) = UnixStream::connect(&path).await {
            waiting.push(connection);
        }

        let bound = timeout(Duration::from_secs(5), UnixSocket::bind(&path)).await;

        let why = bound.expect("no wait").unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::AddrInUse);
    }
}
