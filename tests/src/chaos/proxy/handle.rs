//! What a test says to the proxy.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use super::{connection::Connection, requests};
use crate::ports::free_port;

/// A proxy in front of one server; it ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

/// What connections of a proxy have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) faults: watch::Sender<Faults>,
    losses: Mutex<Vec<(Vec<u8>, Loss)>>,
    attempts: Mutex<Vec<Instant>>,
    open: AtomicU64,
    /// All that was requested, once somebody wants to know.
    heard: Mutex<Option<Vec<u8>>>,
}

/// What is wrong with the network at the moment.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    pub(super) target: u16,
    /// What does not move. Nothing is lost by it.
    pub(super) stall: Stall,
    /// How long replies take on top.
    pub(super) delay: Duration,
    /// Replies arrive one byte at a time.
    pub(super) trickles: bool,
    /// What is answered in place of the server, to each request.
    pub(super) answer: Option<Arc<[u8]>>,
    /// Connections are closed as soon as they are made.
    pub(super) turns_away: bool,
    /// How often all connections were reset, and silenced, so far.
    pub(super) resets: u64,
    pub(super) silences: u64,
}

/// What is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stall {
    /// Nothing.
    Nothing,
    /// Replies. Requests arrive.
    Replies,
    /// Requests and replies.
    Everything,
}

/// What gets lost, and the connection with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The request: the server never sees it.
    Request,
    /// The reply: the server did what it was asked.
    Reply,
    /// The second half of the reply.
    RestOfReply,
    /// The reply, and the connection is not reset but silent from then on.
    ReplyInSilence,
}

impl Proxy {
    /// Listens in front of the server at `target` on 127.0.0.1.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub async fn start(target: u16) -> Proxy {
        let faults = Faults {
            target,
            stall: Stall::Nothing,
            delay: Duration::ZERO,
            trickles: false,
            answer: None,
            turns_away: false,
            resets: 0,
            silences: 0,
        };
        let shared = Shared {
            faults: watch::Sender::new(faults),
            losses: Mutex::new(Vec::new()),
            attempts: Mutex::new(Vec::new()),
            open: AtomicU64::new(0),
            heard: Mutex::new(None),
        };
        let proxy = Proxy {
            port: free_port(),
            shared: Arc::new(shared),
            listening: Mutex::new(None),
        };
        proxy.listen().await;
        proxy
    }

    /// Its address, as that of a Redis.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Holds everything back.
    pub fn freeze(&self) {
        self.change(|faults| faults.stall = Stall::Everything);
    }

    /// Lets everything that was held back arrive.
    pub fn thaw(&self) {
        self.change(|faults| faults.stall = Stall::Nothing);
    }

    /// Delays every reply.
    pub fn delay(&self, by: Duration) {
        self.change(|faults| faults.delay = by);
    }

    /// Holds every reply back until [`Proxy::behave`]. Requests arrive.
    pub fn hold_replies(&self) {
        self.change(|faults| faults.stall = Stall::Replies);
    }

    /// Delivers replies one byte at a time.
    pub fn trickle(&self) {
        self.change(|faults| faults.trickles = true);
    }

    /// Answers every request itself.
    pub fn answer(&self, reply: &[u8]) {
        self.change(|faults| faults.answer = Some(reply.into()));
    }

    /// Lets the server answer again, at once and whole.
    pub fn behave(&self) {
        self.change(|faults| {
            faults.stall = Stall::Nothing;
            faults.delay = Duration::ZERO;
            faults.trickles = false;
            faults.answer = None;
            faults.turns_away = false;
        });
    }

    /// Resets every connection there is.
    pub fn reset(&self) {
        self.change(|faults| faults.resets += 1);
    }

    /// Swallows, on every connection there is, all that is sent; new connections work.
    pub fn go_half_open(&self) {
        self.change(|faults| faults.silences += 1);
    }

    /// Closes every new connection at once, and counts it.
    pub fn turn_away(&self) {
        self.change(|faults| faults.turns_away = true);
    }

    /// Leads new connections to another server.
    pub fn retarget(&self, port: u16) {
        self.change(|faults| faults.target = port);
    }

    /// Loses something of the next request that contains `marker`.
    pub fn lose(&self, loss: Loss, marker: impl AsRef<[u8]>) {
        locked(&self.shared.losses).push((marker.as_ref().to_vec(), loss));
    }

    /// Whether something is still to be lost.
    pub fn loses(&self) -> bool {
        !locked(&self.shared.losses).is_empty()
    }

    /// Keeps, from now on, what is requested.
    pub fn overhear(&self) {
        *locked(&self.shared.heard) = Some(Vec::new());
    }

    /// The requests since [`Proxy::overhear`], each as its words.
    pub fn heard(&self) -> Vec<Vec<Vec<u8>>> {
        let heard = locked(&self.shared.heard);
        requests::words(heard.as_deref().unwrap_or_default())
    }

    /// Refuses new connections, until [`Proxy::listen`].
    pub async fn refuse(&self) {
        let listening = locked(&self.listening).take();
        if let Some(listening) = listening {
            listening.abort();
            let _ = listening.await;
        }
    }

    /// Takes connections again.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub async fn listen(&self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port))
            .await
            .expect("a port to listen on");
        let task = tokio::spawn(Arc::clone(&self.shared).accept_all(listener));
        let before = locked(&self.listening).replace(task);
        assert!(before.is_none(), "the proxy listens already");
    }

    /// When connections were made so far.
    pub fn attempts(&self) -> Vec<Instant> {
        locked(&self.shared.attempts).clone()
    }

    /// How many connections were made since `moment`.
    pub fn attempts_since(&self, moment: Instant) -> usize {
        let attempts = locked(&self.shared.attempts);
        attempts.iter().filter(|made| **made >= moment).count()
    }

    /// How many connections are open.
    pub fn open(&self) -> u64 {
        self.shared.open.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.shared.faults.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.reset();
        if let Some(listening) = locked(&self.listening).take() {
            listening.abort();
        }
    }
}

impl Shared {
    async fn accept_all(self: Arc<Shared>, listener: TcpListener) {
        loop {
            let Ok((client, _)) = listener.accept().await else {
                continue;
            };
            locked(&self.attempts).push(Instant::now());
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                shared.open.fetch_add(1, Ordering::Relaxed);
                // A broken connection is what this is for.
                let _ = shared.serve(client).await;
                shared.open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    async fn serve(self: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
        let faults = self.faults.subscribe();
        let (turns_away, target) = {
            let now = faults.borrow();
            (now.turns_away, now.target)
        };
        if turns_away {
            return Ok(());
        }
        let server = TcpStream::connect(("127.0.0.1", target)).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Connection::new(client, server, faults, self).run().await
    }

    /// What is to be lost of a request, if anything.
    pub(super) fn loss_in(&self, request: &[u8]) -> Option<Loss> {
        if let Some(heard) = locked(&self.heard).as_mut() {
            heard.extend_from_slice(request);
        }
        let mut losses = locked(&self.losses);
        let place = losses.iter().position(|(marker, _)| {
            let mut windows = request.windows(marker.len());
            windows.any(|window| window == marker)
        })?;
        Some(losses.swap_remove(place).1)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
