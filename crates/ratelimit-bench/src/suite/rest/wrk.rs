//! Load by wrk.

use std::{fs, process::Command, time::Duration};

use tempfile::TempDir;

use crate::rest::{CONNECTIONS, KEYS, RestServer};

/// Makes all requests before the first is sent, so that the client does little under load, and prints a line with the
/// requests, the microseconds and the failures.
const SCRIPT: &str = r#"
local requests, number = {}, 0

function init()
  local headers = { ["Content-Type"] = "application/json" }
  for key = 1, KEYS do
    local body = string.format('{"key":"user:%08d",MEMBERS}', key - 1)
    requests[key] = wrk.format("POST", "PATH", headers, body)
  end
end

function request()
  number = number % KEYS + 1
  return requests[number]
end

function done(summary)
  local errors = summary.errors
  local failures = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  print(string.format("driven %d %d %d", summary.requests, summary.duration, failures))
end
"#;

/// How wrk is called.
pub(super) struct Wrk {
    lasting: Duration,
    dir: TempDir,
}

/// The result of one turn.
#[derive(Debug, PartialEq)]
pub(super) struct Driven {
    pub(super) requests: f64,
    pub(super) seconds: f64,
}

impl Wrk {
    pub(super) fn new(lasting: Duration) -> Wrk {
        Wrk {
            lasting,
            dir: TempDir::new().expect("a directory for the script"),
        }
    }

    /// Drives a server, and insists that each answer is a success.
    pub(super) fn drive(&self, server: &RestServer) -> Driven {
        let script = SCRIPT
            .replace("KEYS", &KEYS.to_string())
            .replace("MEMBERS", server.members)
            .replace("PATH", server.path);
        let file = self.dir.path().join("checks.lua");
        fs::write(&file, script).expect("the script is written");
        let output = Command::new("wrk")
            .args(["-t", "1", "-c", &CONNECTIONS.to_string()])
            .args(["-d", &format!("{}s", self.lasting.as_secs())])
            .arg("-s")
            .arg(&file)
            .arg(format!("http://{}", server.addr))
            .output()
            .expect("wrk starts: `cargo xtask bench` installs it");
        let printed = String::from_utf8_lossy(&output.stdout);
        Driven::read(&printed).unwrap_or_else(|| panic!("not a success only:\n{printed}"))
    }
}

impl Driven {
    /// Reads the line of the script; `None` if something failed.
    fn read(printed: &str) -> Option<Driven> {
        let line = printed
            .lines()
            .find_map(|line| line.strip_prefix("driven "))?;
        let numbers: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        let [requests, micros, failures] = numbers.ok()?[..] else {
            return None;
        };
        let is_success = failures == 0.0 && requests > 0.0;
        is_success.then_some(Driven {
            requests,
            seconds: micros / 1e6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_with_a_failure_has_no_result() {
        let printed = |line: &str| format!("Running 3s test\n  1 threads\n{line}\n");

        let driven = Driven {
            requests: 9_000.0,
            seconds: 1.5,
        };
        assert_eq!(
            Driven::read(&printed("driven 9000 1500000 0")),
            Some(driven)
        );
        for line in ["driven 9000 1500000 1", "driven 0 1500000 0", "unable to"] {
            assert_eq!(Driven::read(&printed(line)), None, "{line}");
        }
    }
}
