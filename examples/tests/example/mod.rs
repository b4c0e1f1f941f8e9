//! An example as a process: started on a free port, asked over real connections, killed at the end.
#![allow(
    dead_code,
    reason = "each test binary has this module and calls a part of it"
)]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use ratelimit_tests::proxy_variables;

/// An example that serves, until this is dropped.
pub(crate) struct Example {
    process: Child,
    address: String,
}

impl Example {
    /// Starts `binary` on a free port, and reads where it listens.
    pub(crate) fn start(binary: &str, arguments: &[&str]) -> Example {
        Example::start_logging(binary, arguments, Stdio::inherit())
    }

    /// Starts `binary`, and sends its log to `log`.
    pub(crate) fn start_logging(binary: &str, arguments: &[&str], log: Stdio) -> Example {
        let mut process = Command::new(binary)
            .arg("127.0.0.1:0")
            .args(arguments)
            .env("NO_COLOR", "1")
            .stderr(log)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let output = process.stdout.take().expect("its output is piped");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it says where it listens");
        let address = line.trim().strip_prefix("http://").map(str::to_owned);
        Example {
            process,
            address: address.expect("an address"),
        }
    }

    /// Address at which the example listens: `127.0.0.1:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Status of the response to `request`, such as `GET /`, with further header `fields`.
    pub(crate) fn ask(&self, request: &str, fields: &str) -> u16 {
        let answer = self.answer(request, fields);
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        status.expect("a status")
    }

    /// The whole response: head and body.
    pub(crate) fn answer(&self, request: &str, fields: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close";
        let length = "content-length: 0";
        write!(stream, "{request} {head}\r\n{length}\r\n{fields}\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// The statuses of the same request so many times.
    pub(crate) fn times(&self, times: usize, request: &str, fields: &str) -> Vec<u16> {
        (0..times).map(|_| self.ask(request, fields)).collect()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Output of an example that ends by itself.
pub(crate) fn output(binary: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(binary);
    let output = proxy_variables::clear(&mut command)
        .args(arguments)
        .output();
    let output = output.expect("the example runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}
