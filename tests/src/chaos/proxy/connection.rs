//! One connection through the proxy.

use std::{collections::VecDeque, io, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    handle::{Faults, Loss, Shared, Stall},
    requests::Requests,
};

const CHUNK: usize = 64 * 1024;

/// A client and its server, with the network between them.
pub(super) struct Connection<'a> {
    client: TcpStream,
    server: TcpStream,
    faults: watch::Receiver<Faults>,
    shared: &'a Arc<Shared>,
    resets_at_birth: u64,
    silences_at_birth: u64,
    silent: bool,
    server_is_gone: bool,
    loss: Option<Loss>,
    requests: Requests,
    /// Replies on their way, and when they arrive.
    replies: VecDeque<(Instant, Vec<u8>)>,
}

/// Whether a connection stays open.
#[derive(PartialEq, Eq)]
enum ConnectionStatus {
    Open,
    Reset,
    Closed,
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        client: TcpStream,
        server: TcpStream,
        faults: watch::Receiver<Faults>,
        shared: &'a Arc<Shared>,
    ) -> Connection<'a> {
        let (resets_at_birth, silences_at_birth) = {
            let now = faults.borrow();
            (now.resets, now.silences)
        };
        Connection {
            client,
            server,
            faults,
            shared,
            resets_at_birth,
            silences_at_birth,
            silent: false,
            server_is_gone: false,
            loss: None,
            requests: Requests::default(),
            replies: VecDeque::new(),
        }
    }

    /// Carries bytes both ways until one side or a fault ends it.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let (mut request, mut reply) = (vec![0; CHUNK], vec![0; CHUNK]);
        loop {
            let faults = self.current();
            if faults.resets > self.resets_at_birth {
                return self.client.set_zero_linger();
            }
            let moves = faults.stall != Stall::Everything;
            let arrival = self.replies.front().map(|(due, _)| *due);
            let arrival = arrival.filter(|_| faults.stall == Stall::Nothing);
            let due = arrival.unwrap_or_else(Instant::now);
            let status = tokio::select! {
                changed = self.faults.changed() => match changed {
                    Ok(()) => ConnectionStatus::Open,
                    Err(_) => ConnectionStatus::Closed,
                },
                read = self.client.read(&mut request), if moves => {
                    let length = read?;
                    // What was changed before the request was sent holds for it.
                    let faults = self.thawed().await;
                    if faults.resets > self.resets_at_birth {
                        ConnectionStatus::Reset
                    } else {
                        self.request(&request[..length], &faults).await?
                    }
                }
                read = self.server.read(&mut reply), if moves && !self.server_is_gone => {
                    let length = read?;
                    let faults = self.current();
                    self.reply(&reply[..length], &faults)
                }
                () = sleep_until(due), if arrival.is_some() => {
                    self.deliver(&faults).await?;
                    ConnectionStatus::Open
                }
            };
            match status {
                ConnectionStatus::Open => {}
                ConnectionStatus::Reset => return self.client.set_zero_linger(),
                ConnectionStatus::Closed => return Ok(()),
            }
        }
    }

    /// The faults as soon as requests move again. A request may be read before the loop has seen that the network is frozen.
    async fn thawed(&mut self) -> Faults {
        let resets = self.resets_at_birth;
        let moves = |faults: &Faults| faults.stall != Stall::Everything || faults.resets > resets;
        // An error means that the proxy is gone, which the loop notices.
        let _ = self.faults.wait_for(moves).await;
        self.current()
    }

    /// The faults of this moment.
    fn current(&mut self) -> Faults {
        let faults = self.faults.borrow_and_update().clone();
        self.silent |= faults.silences > self.silences_at_birth;
        faults
    }

    async fn request(&mut self, bytes: &[u8], faults: &Faults) -> io::Result<ConnectionStatus> {
        if bytes.is_empty() {
            return Ok(ConnectionStatus::Closed);
        }
        if self.silent {
            return Ok(ConnectionStatus::Open);
        }
        let whole = self.requests.arrived(bytes);
        if let Some(answer) = &faults.answer {
            for _ in 0..whole {
                self.client.write_all(answer).await?;
            }
            return Ok(ConnectionStatus::Open);
        }
        self.loss = self.loss.or_else(|| self.shared.loss_in(bytes));
        if self.loss == Some(Loss::Request) {
            return Ok(ConnectionStatus::Reset);
        }
        self.server.write_all(bytes).await?;
        Ok(ConnectionStatus::Open)
    }

    fn reply(&mut self, bytes: &[u8], faults: &Faults) -> ConnectionStatus {
        if bytes.is_empty() {
            self.server_is_gone = true;
            // A silent network does not tell the client either.
            return if self.silent {
                ConnectionStatus::Open
            } else {
                ConnectionStatus::Closed
            };
        }
        match self.loss {
            _ if self.silent => {}
            Some(Loss::Reply) => return ConnectionStatus::Reset,
            Some(Loss::RestOfReply) => {
                // A server answers in order: what is on its way arrives before the torn reply does.
                let mut torn: Vec<u8> = self.replies.drain(..).flat_map(|due| due.1).collect();
                torn.extend_from_slice(&bytes[..bytes.len() / 2]);
                // What fits into a socket's empty buffer is written at once.
                let _ = self.client.try_write(&torn);
                return ConnectionStatus::Reset;
            }
            Some(Loss::ReplyInSilence) => self.silent = true,
            _ => {
                let due = Instant::now() + faults.delay;
                self.replies.push_back((due, bytes.to_vec()));
            }
        }
        ConnectionStatus::Open
    }

    /// Hands the first reply on.
    async fn deliver(&mut self, faults: &Faults) -> io::Result<()> {
        let Some((_, bytes)) = self.replies.pop_front() else {
            return Ok(());
        };
        if self.silent {
            return Ok(());
        }
        if !faults.trickles {
            return self.client.write_all(&bytes).await;
        }
        for byte in bytes {
            self.client.write_all(&[byte]).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
