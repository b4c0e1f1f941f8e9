//! SIGHUP, and the same by a call.

use std::io;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// Tells tasks to read their files again.
#[derive(Debug)]
pub(crate) struct HangupSender(watch::Sender<u64>);

/// SIGHUP, or a call that has the same effect.
#[derive(Debug)]
pub(crate) struct Hangup {
    signal: Signal,
    calls: watch::Receiver<u64>,
}

impl Default for HangupSender {
    fn default() -> HangupSender {
        HangupSender(watch::Sender::new(0))
    }
}

impl HangupSender {
    pub(crate) fn send(&self) {
        self.0.send_modify(|number| *number += 1);
    }

    /// Receives signals and calls from now on.
    pub(crate) fn subscribe(&self) -> io::Result<Hangup> {
        Ok(Hangup {
            signal: signal(SignalKind::hangup())?,
            calls: self.0.subscribe(),
        })
    }
}

impl Hangup {
    pub(crate) async fn recv(&mut self) {
        let called = async {
            if self.calls.changed().await.is_err() {
                // The sender is gone: only signals are left.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = self.signal.recv() => {}
            () = called => {}
        }
    }
}
