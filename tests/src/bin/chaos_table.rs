//! Puts our layer and plain ones through the same faults, and prints a table for `docs/explain/failure.md`.
//!
//! Arguments: numbers of rows to run, or none for all.

use ratelimit_tests::chaos::{Kind, scenario};

const HEAD: &str = "\
| # | fault | layer | decisions (without the store) | p99.9 | longest | heals in | counted twice | counted after refusal | passed beyond the limit |
|---|---|---|---|---|---|---|---|---|---|";

const FOOT: &str = "
Sixteen callers, each asking again 5 ms after its answer, 4 s to 20 s for each row. `not at all` is not within
10 s. The plain layers let everything through when they fail.";

#[tokio::main(worker_threads = 4)]
async fn main() {
    let wanted: Vec<u32> = std::env::args()
        .skip(1)
        .map(|row| row.parse().expect("the number of a row"))
        .collect();
    println!("{HEAD}");
    for (row, run) in scenario::ALL {
        if !wanted.is_empty() && !wanted.contains(&row) {
            continue;
        }
        for kind in Kind::ALL {
            let report = run(kind).await;
            println!(
                "| {row} | {} | {kind} | {} |",
                report.fault,
                report.cells().join(" | ")
            );
        }
    }
    println!("{FOOT}");
}
