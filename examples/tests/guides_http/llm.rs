//! docs/guides/llm-tokens.md: a client that hangs up in a stream.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::{eventually, example::Example};

#[test]
fn llm_stream_that_is_left_costs_the_tokens_until_then() {
    let example = Example::start(env!("CARGO_BIN_EXE_llm_tokens"), &[]);
    let mut stream = TcpStream::connect(example.address()).expect("it listens");
    let request = "POST /stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\none ";
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = Vec::new();
    while !text.ends_with(b"token \r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the stream goes on");
        text.push(byte[0]);
    }
    drop(stream);

    // An empty prompt costs its estimate of 96 and settles at 2.
    let mut answers = 0;
    let is_settled = eventually(|| {
        let answer = example.answer("POST /complete", "");
        // A denied request is charged nothing, so its numbers would say nothing about the stream.
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (_, rest) = answer.split_once("\"llm.1\";r=").expect("the tokens");
        let (left, _) = rest.split_once(';').expect("a number");
        let left: u64 = left.parse().expect("a number");
        let streamed = 1000 - 96 - 2 * answers - left;
        answers += 1;
        // The estimate of 97 stands until the server notices. All of the stream would be 61.
        assert!(streamed == 97 || streamed < 61, "{streamed}");
        streamed < 61
    });
    assert!(is_settled);
}
