//! The Redis users that docs/operate/security.md documents.

use super::process::RedisProcess;

/// The page that operators copy the lines from. A test that fails here shows that the page is wrong.
const PAGE: &str = include_str!("../../../docs/operate/security.md");
/// Replaces the placeholder of the page.
const PASSWORD: &str = "secret";

/// How the servers of a test are deployed, which decides the ACL line that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// One server.
    Single,
    /// A master whose address a sentinel tells.
    Sentinel,
    /// Three masters that share the hash slots.
    Cluster,
}

impl Deployment {
    /// All there are, in the order of the page.
    pub const ALL: [Deployment; 3] = [
        Deployment::Single,
        Deployment::Sentinel,
        Deployment::Cluster,
    ];

    /// The documented `ACL SETUSER` command as its words, with a password.
    ///
    /// # Panics
    ///
    /// When the page does not hold exactly one line for each deployment.
    pub fn acl_line(self) -> Vec<String> {
        let lines: Vec<&str> = PAGE
            .split("```redis\n")
            .skip(1)
            .filter_map(|block| block.lines().next())
            .filter(|line| line.starts_with("ACL SETUSER "))
            .collect();
        let [single, sentinel, cluster] = *lines.as_slice() else {
            panic!(
                "docs/operate/security.md has {} ACL lines, not 3",
                lines.len()
            );
        };
        let line = match self {
            Deployment::Single => single,
            Deployment::Sentinel => sentinel,
            Deployment::Cluster => cluster,
        };
        assert!(line.contains(" >PASSWORD "), "no password in {line:?}");
        line.split(' ')
            .map(|word| word.replace("PASSWORD", PASSWORD))
            .collect()
    }

    /// Adds the documented user to a server.
    ///
    /// # Panics
    ///
    /// When the server refuses the line.
    pub fn add_user_to(self, server: &RedisProcess) {
        let line = self.acl_line();
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let added: redis::RedisResult<()> = server.command(&words);
        added.unwrap_or_else(|error| panic!("{}: {error}", line.join(" ")));
    }

    /// The documented user as part of an address: `name:password@`.
    pub fn user(self) -> String {
        format!("{}:{PASSWORD}@", self.acl_line()[2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deployment_has_a_line_with_the_commands_that_only_it_needs() {
        let [single, sentinel, cluster] = Deployment::ALL.map(Deployment::acl_line);
        let has = |line: &[String], word: &str| line.iter().any(|found| found == word);

        for line in [&single, &sentinel, &cluster] {
            assert_eq!(line[..2], ["ACL", "SETUSER"]);
            assert!(has(line, ">secret") && has(line, "~rate_limiter:*"));
            assert!(has(line, "+evalsha") && has(line, "+eval"));
        }
        assert!(has(&sentinel, "+role") && !has(&single, "+role"));
        assert!(has(&cluster, "+asking") && !has(&single, "+asking"));
        assert_eq!(Deployment::Single.user(), "ratelimit:secret@");
    }
}
