//! Settings of a text that is only checked: its files are not opened, and its hidden secrets are those of the server.

use super::settings::Settings;
use crate::redact::redact_whole_url;

impl Settings {
    /// Leaves out files that `running` does not have for the same setting, so that a check of these settings opens no other
    /// file. Returns the names of the settings that are left out.
    ///
    /// Certificates are left out together with their keys: one without the other is an error.
    pub(crate) fn without_new_files(mut self, running: &Settings) -> (Settings, Vec<&'static str>) {
        let mut left_out = Vec::new();
        macro_rules! leave_out {
            ($($($part:ident).+ = $name:literal),+) => {{
                let names = [$(($name, self.$($part).+ != running.$($part).+)),+];
                if names.iter().any(|(_, is_new)| *is_new) {
                    let given = [$(self.$($part).+.is_some()),+];
                    let names = names.iter().zip(given).filter(|((_, is_new), is_given)| *is_new && *is_given);
                    left_out.extend(names.map(|((name, _), _)| *name));
                    $(self.$($part).+ = None;)+
                }
            }};
        }
        leave_out!(admin_token_file = "admin-token-file");
        if !left_out.is_empty() {
            // Without its token the console would have no effect.
            self.console = None;
        }
        leave_out!(
            tls_cert = "tls-cert",
            tls_key = "tls-key",
            tls_client_ca = "tls-client-ca"
        );
        leave_out!(
            redis_ca = "redis-ca",
            redis_cert = "redis-cert",
            redis_key = "redis-key"
        );
        leave_out!(
            envoy.envoy_tls_cert = "envoy-tls-cert",
            envoy.envoy_tls_key = "envoy-tls-key",
            envoy.envoy_tls_client_ca = "envoy-tls-client-ca",
            envoy.envoy_tls_client_san = "envoy-tls-client-san"
        );
        (self, left_out)
    }

    /// Whether the variables of Envoy's own rate limit server are read.
    pub(crate) fn reads_ratelimit_env(&self) -> bool {
        self.envoy.envoy_ratelimit_env == Some(true)
    }

    /// Replaces a URL whose password was hidden by that of the server, if it is the same otherwise.
    pub(crate) fn with_hidden_secrets_of(mut self, running: &Settings) -> Settings {
        if let (Some(url), Some(own)) = (&self.redis, &running.redis)
            && url.0 == redact_whole_url(&own.0)
        {
            self.redis = running.redis.clone();
        }
        self
    }
}
