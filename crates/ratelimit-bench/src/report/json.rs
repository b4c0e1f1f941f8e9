//! A report as JSON, and back.

use std::fmt;

use serde_json::{Map, Value, json};

use super::{Chart, Circumstances, Goal, Peer, Report, Row, Scale, Series, Spread, rounded};

impl Report {
    /// All numbers, for programs.
    pub fn json(&self) -> Value {
        json!({
            "command": self.circumstances.command,
            "cores": self.circumstances.cores,
            "redis": self.circumstances.redis,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "charts": self.charts.iter().map(chart).collect::<Vec<_>>(),
        })
    }

    /// The report that [`json`](Self::json) wrote.
    ///
    /// # Errors
    ///
    /// When a member is missing or has another type.
    pub fn from_json(report: &Value) -> Result<Report, InvalidReport> {
        let circumstances = Circumstances {
            cores: usize::try_from(member(report, "cores", Value::as_u64)?)
                .map_err(|_| InvalidReport("cores"))?,
            redis: text(report, "redis")?,
            command: text(report, "command")?,
        };
        let rows = member(report, "rows", Value::as_array)?;
        let charts = member(report, "charts", Value::as_array)?;
        Ok(Report {
            circumstances,
            rows: rows.iter().map(read_row).collect::<Result<_, _>>()?,
            charts: charts.iter().map(read_chart).collect::<Result<_, _>>()?,
        })
    }
}

fn row(row: &Row) -> Value {
    json!({
        "what": row.what,
        "unit": row.unit,
        "ours": spread(row.ours),
        "peer": row.peer.as_ref().map(|peer| json!({
            "name": peer.name,
            "number": spread(peer.number),
        })),
        "ratio": row.ratio().map(rounded),
        "goal": row.goal.map(goal),
        "met": row.is_met(),
    })
}

fn read_row(row: &Value) -> Result<Row, InvalidReport> {
    let peer = |peer: &Value| {
        Ok(Peer {
            name: text(peer, "name")?,
            number: read_spread(&peer["number"])?,
        })
    };
    Ok(Row {
        what: text(row, "what")?,
        unit: text(row, "unit")?.into(),
        ours: read_spread(&row["ours"])?,
        peer: some(&row["peer"]).map(peer).transpose()?,
        goal: some(&row["goal"]).map(read_goal).transpose()?,
    })
}

fn spread(spread: Spread) -> Value {
    json!({
        "low": rounded(spread.low),
        "median": rounded(spread.median),
        "high": rounded(spread.high),
    })
}

fn read_spread(spread: &Value) -> Result<Spread, InvalidReport> {
    Ok(Spread {
        low: member(spread, "low", Value::as_f64)?,
        median: member(spread, "median", Value::as_f64)?,
        high: member(spread, "high", Value::as_f64)?,
    })
}

fn goal(goal: Goal) -> Value {
    match goal {
        Goal::AtMost(most) => json!({ "at_most": most }),
        Goal::AtLeast(least) => json!({ "at_least": least }),
        Goal::RatioAtMost(most) => json!({ "ratio_at_most": most }),
        Goal::RatioAtLeast(least) => json!({ "ratio_at_least": least }),
    }
}

fn read_goal(goal: &Value) -> Result<Goal, InvalidReport> {
    let wrong = InvalidReport("goal");
    let members = goal.as_object().map(Map::iter);
    let (name, bound) = members
        .and_then(|mut members| members.next())
        .ok_or(wrong)?;
    let bound = bound.as_f64().ok_or(wrong)?;
    Ok(match name.as_str() {
        "at_most" => Goal::AtMost(bound),
        "at_least" => Goal::AtLeast(bound),
        "ratio_at_most" => Goal::RatioAtMost(bound),
        "ratio_at_least" => Goal::RatioAtLeast(bound),
        _ => return Err(wrong),
    })
}

fn chart(chart: &Chart) -> Value {
    let series = chart.series.iter().map(|series| {
        let points: Vec<Vec<f64>> = series.points.iter().map(point).collect();
        json!({ "name": series.name, "points": points })
    });
    json!({
        "name": chart.name,
        "title": chart.title,
        "x": chart.x,
        "y": chart.y,
        "scale": match chart.scale {
            Scale::Linear => "linear",
            Scale::Factors => "factors",
        },
        "series": series.collect::<Vec<_>>(),
    })
}

fn read_chart(chart: &Value) -> Result<Chart, InvalidReport> {
    let series = member(chart, "series", Value::as_array)?.iter();
    let series = series.map(|series| {
        let points = member(series, "points", Value::as_array)?.iter();
        let points = points.map(read_point).collect::<Result<_, _>>()?;
        Ok(Series::of_spreads(text(series, "name")?, points))
    });
    Ok(Chart {
        name: text(chart, "name")?.into(),
        title: text(chart, "title")?,
        x: text(chart, "x")?.into(),
        y: text(chart, "y")?.into(),
        scale: match &*text(chart, "scale")? {
            "linear" => Scale::Linear,
            "factors" => Scale::Factors,
            _ => return Err(InvalidReport("scale")),
        },
        series: series.collect::<Result<_, _>>()?,
    })
}

/// `[x, median]`, and the least and the most where they differ.
fn point((x, spread): &(f64, Spread)) -> Vec<f64> {
    let Spread { low, median, high } = spread.map(rounded);
    if low < high {
        return vec![*x, median, low, high];
    }
    vec![*x, median]
}

fn read_point(point: &Value) -> Result<(f64, Spread), InvalidReport> {
    let wrong = InvalidReport("points");
    let numbers = point.as_array().ok_or(wrong)?.iter().map(Value::as_f64);
    let numbers: Vec<f64> = numbers.collect::<Option<_>>().ok_or(wrong)?;
    match numbers[..] {
        [x, median] => Ok((x, Spread::exactly(median))),
        [x, median, low, high] => Ok((x, Spread { low, median, high })),
        _ => Err(wrong),
    }
}

fn some(value: &Value) -> Option<&Value> {
    (!value.is_null()).then_some(value)
}

fn member<'a, T>(
    object: &'a Value,
    name: &'static str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<T, InvalidReport> {
    read(&object[name]).ok_or(InvalidReport(name))
}

fn text(object: &Value, name: &'static str) -> Result<String, InvalidReport> {
    member(object, name, Value::as_str).map(str::to_owned)
}

/// JSON that is not a report, and the member that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidReport(&'static str);

impl fmt::Display for InvalidReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the member {} is missing or has another type", self.0)
    }
}

impl std::error::Error for InvalidReport {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_it_was_written() {
        let spread = Spread::of(&[1.0, 2.0, 4.5]);
        let row = |goal| {
            Row::new("a hot key", "ns", spread)
                .beside("governor", Spread::exactly(3.0))
                .goal(goal)
        };
        let report = Report {
            circumstances: Circumstances {
                cores: 2,
                redis: "7.0.15".to_owned(),
                command: "cargo xtask bench".to_owned(),
            },
            rows: vec![
                row(Goal::AtMost(1.0)),
                row(Goal::AtLeast(1.0)),
                row(Goal::RatioAtMost(1.0)),
                row(Goal::RatioAtLeast(1.0)),
                Row::new("alone", "bytes", spread),
            ],
            charts: vec![Chart {
                name: "tasks".into(),
                title: "Checks".to_owned(),
                x: "tasks".into(),
                y: "checks/s".into(),
                scale: Scale::Factors,
                series: vec![
                    Series::of_spreads("this limiter", vec![(1.0, spread)]),
                    Series::new("governor", vec![(1.0, 2.0)]),
                ],
            }],
        };

        let read = Report::from_json(&report.json()).unwrap();

        assert_eq!(read.rows, report.rows);
        assert_eq!(read.charts, report.charts);
        assert_eq!(read.json(), report.json());
    }

    #[test]
    fn a_missing_member_is_named() {
        let why = Report::from_json(&json!({ "cores": 2 })).unwrap_err();

        assert_eq!(why, InvalidReport("redis"));
    }
}
