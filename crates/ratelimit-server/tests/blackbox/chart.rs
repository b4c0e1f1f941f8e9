//! Charts, held to what the engine answers.

use std::{fmt::Write as _, fs};

use ratelimit_tests::redis::TestRedis;
use tempfile::TempDir;

use crate::{
    server::binary,
    simulate::{lines, simulate},
};

/// Where a chart's plot lies, in tenths.
const LEFT: u64 = 700;
const WIDE: u64 = 7_800;
const TOP: u64 = 460;
const HIGH: u64 = 1_100;

/// Draws a trace, and gives the lines of all budgets.
fn charted(args: &[&str], trace: &str) -> (String, Vec<Steps>) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("chart.svg");
    let args = [args, &["--chart", path.to_str().unwrap()]].concat();
    assert!(simulate(&args, trace).status.success());
    let svg = fs::read_to_string(path).unwrap();
    let paths = svg.split("<path class=\"budget\" d=\"").skip(1);
    let steps = paths.map(|rest| Steps::read(rest.split('"').next().unwrap()));
    let steps = steps.collect();
    (svg, steps)
}

/// A line that goes along and then up or down, as corners in tenths.
#[derive(Debug)]
struct Steps(Vec<(u64, u64)>);

impl Steps {
    fn read(path: &str) -> Steps {
        let tenths = |text: &str| text.replace('.', "").parse::<u64>().unwrap();
        let (start, rest) = path.split_at(path.find('H').unwrap());
        let (x, y) = start[1..].split_once(' ').unwrap();
        let mut corners = vec![(tenths(x), tenths(y))];
        for step in rest.split('H').skip(1) {
            let (x, y) = step.split_once('V').unwrap_or((step, ""));
            let before = corners.last().unwrap().1;
            let y = if y.is_empty() { before } else { tenths(y) };
            corners.push((tenths(x), y));
        }
        Steps(corners)
    }

    /// How high the line stands at `x`, after all that happens there.
    fn y(&self, x: u64) -> u64 {
        let before = self.0.iter().take_while(|corner| corner.0 <= x);
        before.last().unwrap().1
    }
}

#[test]
fn the_budget_between_hits_is_what_a_look_answers() {
    for (limit, whole, period_micros) in [
        ("token_bucket 10/s burst 20", 20, 2_000_000),
        ("leaky_bucket 10/s queue 20", 20, 2_000_000),
        ("fixed_window 8/2s", 8, 2_000_000),
        ("sliding_window_log 8/2s", 8, 2_000_000),
        ("sliding_window_counter 8/2s", 8, 2_000_000),
    ] {
        let hits = [(500_000, whole - 3), (900_000, 3), (8_900_000, 1)];
        let hits = hits.map(|(at, cost)| (at, format!("{{\"t\":{at}e-6,\"cost\":{cost}}}\n")));
        let trace: String = hits.iter().map(|(_, line)| line.as_str()).collect();
        let (_, drawn) = charted(&["--limit", limit], &trace);
        let span = 8_900_000 - 500_000 + period_micros;
        let moments = (1..410_u64).map(|step| 500_000 + span * step / 410);

        let mut seen = String::new();
        let mut asked = Vec::new();
        let mut hits = hits.iter().peekable();
        for moment in moments {
            while let Some((_, line)) = hits.next_if(|(at, _)| *at <= moment) {
                seen.push_str(line);
                asked.push(None);
            }
            writeln!(seen, "{{\"t\":{moment}e-6,\"cost\":0}}").unwrap();
            asked.push(Some(moment));
        }

        let answers = lines(&simulate(&["--limit", limit], &seen));
        for (moment, answer) in asked.iter().zip(&answers) {
            let Some(moment) = moment else { continue };
            let left = answer["remaining"].as_u64().unwrap();
            let y = drawn[0].y(LEFT + (moment - 500_000) * WIDE / span);
            let expected = TOP + (whole - left) * HIGH / whole;
            assert_eq!(y, expected, "{limit} at {moment}: {left}");
        }
    }
}

#[test]
fn a_refilling_budget_rises_between_hits() {
    let trace = "{\"t\":0,\"cost\":5}\n{\"t\":9,\"cost\":5}\n";

    let (_, drawn) = charted(&["--limit", "token_bucket 1/s burst 5"], trace);

    let between = |corner: &&(u64, u64)| corner.0 > LEFT && corner.0 < LEFT + WIDE / 2;
    let heights = drawn[0].0.iter().filter(between).map(|corner| corner.1);
    let heights: Vec<u64> = heights.collect();
    assert_eq!(heights, [1_340, 1_120, 900, 680, 460], "{drawn:?}");
}

#[test]
fn keys_and_limits_have_lines_of_their_own() {
    let trace = "{\"t\":0,\"key\":\"a\"}\n{\"t\":1,\"key\":\"b\"}\n";

    let (svg, drawn) = charted(&["--limit", "2/s; fixed_window 9/h"], trace);

    assert_eq!(drawn.len(), 4);
    for name in ["a: token_bucket 2/s", "b: fixed_window 9/h"] {
        assert!(svg.contains(&format!(">{name}</tspan>")), "{svg}");
    }
}

#[tokio::test]
async fn both_stores_draw_the_same() {
    let redis = TestRedis::start().await;
    let mut trace = String::new();
    for place in 10..50 {
        let key = place % 3;
        writeln!(trace, "{{\"t\":0.{place},\"key\":\"{key}\"}}").unwrap();
    }
    let limits = ["--limit", "sliding_window_counter 9/s", "--limit", "5/s"];

    let (memory, _) = charted(&limits, &trace);
    let (shared, _) = charted(&[&limits[..], &["--store", redis.url()]].concat(), &trace);

    assert_eq!(memory, shared);
}

#[test]
fn a_chart_shows_every_run() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("chart.svg");
    let path = path.to_str().unwrap();
    let args = [
        "simulate",
        "--limit",
        "leaky_bucket 10/s queue 20",
        "--limit",
        "fixed_window 10/s",
        "--traffic",
        "poisson",
        "--chart",
        path,
    ];

    let output = binary().args(args).output().unwrap();

    assert!(output.status.success());
    let svg = fs::read_to_string(path).unwrap();
    assert!(svg.contains("leaky_bucket 10/s queue 20") && svg.contains("fixed_window 10/s"));
    assert!(svg.contains("delayed") && svg.contains("denied") && svg.contains("admitted"));
}
