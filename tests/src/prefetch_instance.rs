//! A process of the binary `prefetch_instance`.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A running process that hits one key with prefetching; it is killed when this is dropped.
#[derive(Debug)]
pub struct PrefetchInstance {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// The hits of one or several instances.
#[derive(Debug, Default)]
pub struct InstanceHits {
    /// All hits.
    pub hits: u64,
    /// Those that were decided from memory.
    pub prefetched: u64,
    /// When each hit passed, by the store's clock, in microseconds.
    pub passed: Vec<u64>,
}

impl PrefetchInstance {
    /// Starts `binary`, which hits the key `one` of the policy `hot` with these limits and a share of 5 %.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn start(
        binary: &str,
        [url, prefix, limits]: [&str; 3],
        [rate, millis]: [u64; 2],
    ) -> PrefetchInstance {
        let mut process = Command::new(binary)
            .args([url, prefix, limits, "5"])
            .args([rate.to_string(), millis.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the process of an instance");
        let output = BufReader::new(process.stdout.take().expect("its output is piped"));
        PrefetchInstance { process, output }
    }

    /// Waits until it has made its hits. It keeps its units until it is killed.
    ///
    /// # Panics
    ///
    /// When it ends before, or prints something else.
    pub fn hits(&mut self) -> InstanceHits {
        let mut hits = InstanceHits::default();
        for line in self.output.by_ref().lines() {
            let line = line.expect("its output");
            match *line.split(' ').collect::<Vec<_>>() {
                ["hits", made, prefetched] => {
                    hits.hits = made.parse().expect("a number");
                    hits.prefetched = prefetched.parse().expect("a number");
                }
                ["passed", now] => hits.passed.push(now.parse().expect("a time")),
                ["end"] => return hits,
                _ => panic!("not an answer: {line}"),
            }
        }
        panic!("the instance has ended");
    }

    /// Sends it a signal, as in `signal("STOP")`.
    ///
    /// # Panics
    ///
    /// When there is no such process any more.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &self.process.id().to_string()])
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{signal}");
    }
}

impl Drop for PrefetchInstance {
    /// Kills it, as with `kill -9`.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl InstanceHits {
    /// Adds the hits of another instance.
    pub fn add(&mut self, other: InstanceHits) {
        self.hits += other.hits;
        self.prefetched += other.prefetched;
        self.passed.extend(other.passed);
    }
}
