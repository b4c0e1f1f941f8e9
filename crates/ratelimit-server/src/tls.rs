//! TLS of the listeners, with certificates that are read again when their files change.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use metrics::counter;
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use crate::{
    cli_error::CliError,
    config::{InvalidConfig, TlsConfigs, TlsContents, TlsFiles},
    file_read::FileThread,
    hangup::Hangup,
    metrics::{TLS_RELOADS, set_config_ok},
    missing_files::MissingFiles,
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The current TLS settings of one listener. Clones share them; connections in progress keep theirs.
#[derive(Clone, Debug)]
pub(crate) struct CurrentTls(Arc<RwLock<Arc<ServerConfig>>>);

impl CurrentTls {
    fn new(config: Arc<ServerConfig>) -> CurrentTls {
        CurrentTls(Arc::new(RwLock::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.0.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }

    fn replace(&self, config: Arc<ServerConfig>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }
}

/// The TLS settings of the server, and the files that they come from.
pub(crate) struct ServerTls {
    files: TlsFiles,
    /// The contents that were read last, valid or not.
    seen: TlsContents,
    pub(crate) main: CurrentTls,
    pub(crate) admin: CurrentTls,
}

impl ServerTls {
    pub(crate) fn new(files: TlsFiles) -> Result<ServerTls, InvalidConfig> {
        let seen = files.read()?;
        let TlsConfigs { main, admin } = seen.configs()?;
        Ok(ServerTls {
            files,
            seen,
            main: CurrentTls::new(main),
            admin: CurrentTls::new(admin),
        })
    }

    /// Reads the files again when they change and on SIGHUP; never returns.
    ///
    /// Files with an error are logged once for each change, and the old certificate stays.
    pub(crate) async fn follow(mut self, mut hangup: Hangup) {
        count("ok", 0);
        count("rejected", 0);
        let label = self.files.label();
        let mut thread = FileThread::new(label);
        // Whether the contents that were read last are valid, and whether a requested read failed since.
        let (mut is_valid, mut is_unread) = (true, false);
        // A change is used when two looks a second apart agree: certificate and key are replaced one after the other.
        let mut changed: Option<TlsContents> = None;
        let mut missing = MissingFiles::default();
        loop {
            let is_requested = tokio::select! {
                () = hangup.recv() => true,
                () = tokio::time::sleep(POLL_INTERVAL) => false,
            };
            let files = self.files.clone();
            let Ok(read) = thread.run(move || files.read()).await else {
                continue;
            };
            let unreadable = match &read {
                Err(InvalidConfig::Unreadable { path, .. }) => Some(path.clone()),
                _ => None,
            };
            missing.log_lost(&Vec::from_iter(unreadable));
            is_unread = read.is_err() && (is_unread || is_requested);
            set_config_ok(label, is_valid && !is_unread && !missing.has_lost());
            let contents = match read {
                Ok(contents) => contents,
                // A file that is missing for a moment is being replaced.
                Err(_) if !is_requested => continue,
                Err(why) => {
                    log_rejected(why);
                    continue;
                }
            };
            let is_settled = changed.as_ref() == Some(&contents);
            if is_requested || (contents != self.seen && is_settled) {
                changed = None;
                let parsed = thread.run(move || (contents.configs(), contents)).await;
                let Ok((configs, contents)) = parsed else {
                    continue;
                };
                self.seen = contents;
                is_valid = self.adopt(configs);
                set_config_ok(label, is_valid);
            } else if contents != self.seen {
                changed = Some(contents);
            }
        }
    }

    /// Uses new certificates. The result is whether they are valid.
    fn adopt(&self, configs: Result<TlsConfigs, InvalidConfig>) -> bool {
        match configs {
            Ok(TlsConfigs { main, admin }) => {
                self.main.replace(main);
                self.admin.replace(admin);
                count("ok", 1);
                tracing::info!("reloaded the certificates");
                true
            }
            Err(why) => {
                log_rejected(why);
                false
            }
        }
    }
}

fn log_rejected(why: InvalidConfig) {
    count("rejected", 1);
    let why = CliError::from(why);
    tracing::error!("the new certificates are refused, the old ones stay: {why}");
}

fn count(result: &'static str, times: u64) {
    counter!(TLS_RELOADS, "result" => result).increment(times);
}
