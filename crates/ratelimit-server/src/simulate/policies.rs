//! The policies of a simulation.

use std::path::Path;

use ratelimit_core::{Policy, Throttle};
use ratelimit_http::policy::{CostSource, HttpPolicy};

use crate::{
    cli_error::CliError,
    config::{Policies, file_policies},
};

/// Maximum number of policies in the error about an unknown one.
const MAX_LISTED: usize = 20;

/// A policy, and its name in outputs.
#[derive(Clone, Debug)]
pub(super) struct SimulatedPolicy {
    pub(super) policy: Policy,
    /// The text of its limits, or its name in a file.
    pub(super) label: String,
    /// The title of its chart.
    pub(super) title: String,
}

impl SimulatedPolicy {
    /// The policy of a text of limits. `place` makes its name unique.
    pub(super) fn of_limits(
        place: usize,
        text: &str,
        throttle: Throttle,
    ) -> Result<SimulatedPolicy, CliError> {
        let policy = Policy::parse(&format!("simulate-{}", place + 1), text)?;
        if let Err(why) = check_key_names(&policy) {
            eprintln!("note: {text}: {why}");
        }
        Ok(SimulatedPolicy {
            policy: policy.with_throttle(throttle)?,
            label: text.to_owned(),
            title: text.to_owned(),
        })
    }

    /// The named policies of a configuration file. Notes on standard error say which of their settings are not simulated.
    pub(super) fn of_file(path: &Path, names: &[String]) -> Result<Vec<SimulatedPolicy>, CliError> {
        let (policies, warnings) = file_policies(path)?;
        for warning in warnings {
            eprintln!("{}", warning.in_file(path.display()));
        }
        let found = names.iter().map(|name| {
            let policy = policies.http(name);
            policy.ok_or_else(|| unknown_policy(path, name, &policies))
        });
        let found: Vec<&HttpPolicy> = found.collect::<Result<_, _>>()?;
        let policies = found.into_iter().map(SimulatedPolicy::of_http);
        policies.collect()
    }

    fn of_http(http: &HttpPolicy) -> Result<SimulatedPolicy, CliError> {
        let policy = http.policy();
        let name = policy.name();
        check_throttle(policy.throttle()).map_err(|why| format!("policy {name}: {why}"))?;
        for note in unsimulated(http) {
            eprintln!("note: policy {name}: {note}");
        }
        Ok(SimulatedPolicy {
            policy: policy.clone(),
            label: name.to_owned(),
            title: format!("{name}: {policy}"),
        })
    }

    /// The same policy with a share to prefetch.
    pub(super) fn with_prefetch(mut self, percent: u32) -> Result<SimulatedPolicy, CliError> {
        self.policy = self.policy.with_prefetch(percent)?;
        Ok(self)
    }
}

fn unknown_policy(path: &Path, name: &str, policies: &Policies) -> CliError {
    let known = policies.iter().map(Policy::name).take(MAX_LISTED);
    let known: Vec<&str> = known.collect();
    let more = if policies.iter().nth(MAX_LISTED).is_some() {
        ", ..."
    } else {
        ""
    };
    let known = known.join(", ");
    format!(
        "{}: there is no policy {name}; there are {known}{more}",
        path.display()
    )
    .into()
}

/// The settings of a policy that change nothing in a simulation.
fn unsimulated(http: &HttpPolicy) -> Vec<String> {
    let policy = http.policy();
    let mut notes = Vec::new();
    if http.has_rules() {
        notes.push("exempt and blocked are not simulated: every hit is counted".to_owned());
    }
    if let Err(why) = check_key_names(policy) {
        notes.push(why);
    }
    if *http.cost_source() != CostSource::default() {
        notes.push("a cost from a header or body is that of the line".to_owned());
    }
    if policy.enforcement_percent() < 100 {
        notes.push("every denial is shown, also those that are not enforced".to_owned());
    }
    if let Some(percent) = policy.prefetch() {
        notes.push(format!(
            "prefetch is simulated with --prefetch {percent}% only"
        ));
    }
    notes
}

/// Checks that no limit is `by NAME`.
pub(crate) fn check_key_names(policy: &Policy) -> Result<(), String> {
    match policy.key_names().next() {
        Some(name) => Err(format!(
            "a limit by {name} is not simulated: a trace has one key for each hit, and every limit counts by it"
        )),
        None => Ok(()),
    }
}

/// Parses the throttle of a simulation: `hard`, or `soft 10%`.
pub(crate) fn parse_throttle(text: &str) -> Result<Throttle, String> {
    let throttle: Throttle = text
        .parse()
        .map_err(|_| "expected `hard`, or `soft` and a percentage as in `soft 10%`".to_owned())?;
    check_throttle(&throttle)?;
    Ok(throttle)
}

fn check_throttle(throttle: &Throttle) -> Result<(), String> {
    match throttle {
        Throttle::Elastic { .. } => {
            let why = "an elastic throttle follows the load of a server, which is not simulated";
            Err(why.to_owned())
        }
        _ => Ok(()),
    }
}
