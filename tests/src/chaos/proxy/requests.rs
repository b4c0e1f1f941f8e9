//! Requests to Redis, told apart in a stream of bytes.

/// Counts the requests that have arrived whole.
#[derive(Debug, Default)]
pub(super) struct Requests {
    unread: Vec<u8>,
}

impl Requests {
    /// Takes what has arrived, and tells how many requests are now whole that were not before.
    pub(super) fn arrived(&mut self, bytes: &[u8]) -> usize {
        self.unread.extend_from_slice(bytes);
        let mut whole = 0;
        while let Some(length) = first_length(&self.unread) {
            self.unread.drain(..length);
            whole += 1;
        }
        whole
    }
}

/// The requests in `bytes`, each as its words.
pub(super) fn words(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut requests = Vec::new();
    while let Some((parts, mut at)) = number_line(bytes, 0) {
        let mut words = Vec::new();
        for _ in 0..parts {
            let Some((length, text)) = number_line(bytes, at) else {
                return requests;
            };
            let Some(word) = bytes.get(text..text + length) else {
                return requests;
            };
            words.push(word.to_vec());
            at = text + length + 2;
        }
        requests.push(words);
        bytes = bytes.get(at..).unwrap_or_default();
    }
    requests
}

/// How long the first request is, if all of it is there: `*2\r\n$3\r\nGET\r\n$1\r\na\r\n`.
fn first_length(bytes: &[u8]) -> Option<usize> {
    let (parts, mut at) = number_line(bytes, 0)?;
    for _ in 0..parts {
        let (length, text) = number_line(bytes, at)?;
        at = text + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// The number on the line at `from`, behind its one letter, and where the next line begins.
fn number_line(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let line = bytes.get(from..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    let digits = std::str::from_utf8(line.get(1..end)?).ok()?;
    Some((digits.parse().ok()?, from + end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_when_its_last_byte_is_there() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\n\r\n*\r\n*1\r\n$4\r\nPING\r\n";
        let mut requests = Requests::default();

        let counts: Vec<usize> = bytes
            .iter()
            .map(|byte| requests.arrived(&[*byte]))
            .collect();

        assert_eq!(counts.iter().sum::<usize>(), 2);
        assert_eq!(counts.last(), Some(&1));
        assert_eq!(Requests::default().arrived(bytes), 2);
        assert_eq!(words(bytes)[0], [b"GET", b"\r\n*"]);
    }
}
