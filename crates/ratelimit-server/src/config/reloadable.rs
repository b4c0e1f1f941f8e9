//! The settings that a reload applies, for the difference between two configurations.

use super::settings::Settings;

/// The names and values of the settings that a reload applies, without policies.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadableSettings(Vec<(&'static str, String)>);

impl ReloadableSettings {
    pub(super) fn new(settings: &Settings) -> ReloadableSettings {
        macro_rules! values {
            ($($name:ident)*) => { vec![$( (stringify!($name), format!("{:?}", settings.$name)) ),*] };
        }
        let values = values!(trusted trust_everyone chain_header path_header hops max_hops ipv6_prefix no_real_ip
            require_policy key_pattern admin_token_file allowed_host log_keys);
        #[cfg(feature = "envoy")]
        let values = {
            let rules = settings.envoy_rules.as_ref().map(|envoy| &envoy.rules);
            let count = |count: Option<usize>| count.unwrap_or_default().to_string();
            // Rules have lines, which differ in texts with equal rules.
            let of_envoy = [
                ("envoy.rule", count(rules.map(|all| all.rules.len()))),
                ("envoy.bucket", count(rules.map(|all| all.buckets.len()))),
            ];
            values.into_iter().chain(of_envoy).collect()
        };
        ReloadableSettings(values)
    }

    /// The names of the settings whose values differ.
    pub(crate) fn changes(&self, running: &ReloadableSettings) -> Vec<String> {
        let pairs = self.0.iter().zip(&running.0);
        let changed = pairs.filter(|(one, other)| one != other);
        changed
            .map(|((name, _), _)| name.replace('_', "-"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn every_reloadable_setting_is_compared() {
        let none = ReloadableSettings::new(&Settings::default());
        for (flag, value) in [
            ("trusted", "10.0.0.0/8"),
            ("trust-everyone", "true"),
            ("chain-header", "forwarded"),
            ("path-header", "x-path"),
            ("hops", "2"),
            ("max-hops", "2"),
            ("ipv6-prefix", "56"),
            ("no-real-ip", "true"),
            ("require-policy", "true"),
            ("key-pattern", "a*"),
            ("admin-token-file", "token"),
            ("allowed-host", "a.example"),
            ("log-keys", "true"),
        ] {
            let args = ["server".to_owned(), format!("--{flag}={value}")];
            let changed = ReloadableSettings::new(&crate::Cli::parse_from(args).settings);
            assert_eq!(changed.changes(&none), [flag]);
        }
    }
}
