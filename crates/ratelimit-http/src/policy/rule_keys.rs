//! The rules of a policy, and the keys that rules and tenants name.

use super::{BlockStatus, HttpPolicy, Rule};
use crate::key::{KeyKinds, RuleKey};

impl HttpPolicy {
    /// The rules that exempt requests, in the order in which they were added.
    ///
    /// ```
    /// use ratelimit_http::policy::HttpPolicy;
    ///
    /// let api = HttpPolicy::parse("api", "10/min")?.with_exempt_rule("192.0.2.0/24".parse()?);
    /// assert_eq!(api.exempt_rules()[0].to_string(), "192.0.2.0/24");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exempt_rules(&self) -> &[Rule] {
        &self.terms.exempt
    }

    /// The rules that block requests, in the order in which they were added.
    ///
    /// ```
    /// use ratelimit_http::policy::HttpPolicy;
    ///
    /// let api = HttpPolicy::parse("api", "10/min")?.with_block_rule("path:/old/*".parse()?);
    /// assert_eq!(api.block_rules()[0].to_string(), "path:/old/*");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_rules(&self) -> &[Rule] {
        &self.terms.blocked
    }

    /// The status of blocked requests.
    pub fn block_status(&self) -> BlockStatus {
        self.terms.block_status
    }

    /// The rules and tenants that name a key which an extractor of these kinds can never make, each
    /// with its warning.
    ///
    /// ```
    /// use ratelimit_http::{key::KeyKinds, policy::HttpPolicy};
    ///
    /// let api = HttpPolicy::parse("api", "10/min")?.with_block_rule("key:mallory".parse()?);
    /// let warnings = api.unmatched_keys(&KeyKinds::named("header", "x-user"));
    /// assert!(warnings[0].starts_with("the rule key:mallory never matches"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unmatched_keys(&self, kinds: &KeyKinds) -> Vec<String> {
        let rules = self.terms.blocked.iter().chain(&self.terms.exempt);
        let rules = rules.filter_map(|rule| match rule {
            Rule::Key(key) => Some(("rule", key.clone())),
            _ => None,
        });
        let listed = self.policy.tier_members().cloned().map(RuleKey::from);
        let tenants = listed.chain(self.terms.secret_tenants.iter().cloned());
        let all = rules.chain(tenants.map(|key| ("tenant", key)));
        all.filter_map(|(noun, key)| kinds.warning(noun, &key))
            .collect()
    }

    /// Whether a rule compares the path of requests.
    ///
    /// ```
    /// use ratelimit_http::policy::HttpPolicy;
    ///
    /// let api = HttpPolicy::parse("api", "10/min")?.with_exempt_rule("192.0.2.0/24".parse()?);
    /// assert!(api.has_rules() && !api.has_path_rules());
    /// assert!(api.with_exempt_rule("path:/health".parse()?).has_path_rules());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_path_rules(&self) -> bool {
        let mut rules = self.terms.blocked.iter().chain(&self.terms.exempt);
        rules.any(|rule| matches!(rule, Rule::Path(_)))
    }

    /// Assigns keys to tiers: [`Policy::with_tier_members`](ratelimit_core::Policy::with_tier_members). A member is a
    /// [`Key`](ratelimit_core::Key), or a [`RuleKey`] that was parsed from a text.
    ///
    /// ```
    /// use ratelimit_core::Key;
    /// use ratelimit_http::{key::RuleKey, policy::HttpPolicy};
    ///
    /// let acme: RuleKey = "printed:header:x-tenant:acme".parse()?;
    /// let api = HttpPolicy::parse("api", "10/min")?
    ///     .with_tier("pro", "1000/min")?
    ///     .with_tier_members([(acme, "pro")]);
    /// let key = Key::tagged("header", "x-tenant:acme")?;
    /// assert_eq!(api.policy().for_key(&key).to_string(), "token_bucket 1000/min");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_tier_members<K: Into<RuleKey>, T: AsRef<str>>(
        self,
        members: impl IntoIterator<Item = (K, T)>,
    ) -> HttpPolicy {
        let members = members.into_iter().map(|(key, tier)| (key.into(), tier));
        let members: Vec<(RuleKey, T)> = members.collect();
        // The digest of a secret does not show its kind, so one member of each kind is kept.
        let mut secrets: Vec<RuleKey> = Vec::new();
        for (key, _) in &members {
            let is_known = |one: &RuleKey| one.secret_kind() == key.secret_kind();
            if key.secret_kind().is_some() && !secrets.iter().any(is_known) {
                secrets.push(key.clone());
            }
        }
        let members = members.into_iter();
        let members = members.map(|(key, tier)| (key.key().clone(), tier));
        self.map_policy(|policy| policy.with_tier_members(members))
            .map_terms(|terms| terms.secret_tenants = secrets)
    }
}
