//! The text format of Prometheus, version 0.0.4.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::{self, Display, Write as _},
    sync::{Arc, atomic::Ordering},
};

use metrics::Key;

use super::{
    histogram::BucketHistogram,
    series::{HelpTexts, SharedValue},
};

/// All series of a moment, grouped by the name of their metric as it is written.
///
/// Series are added with their handles, and the text is written afterwards: while the registry is visited, new metrics wait.
#[derive(Default)]
pub(super) struct Exposition {
    families: BTreeMap<String, Family>,
}

/// The series of one metric.
struct Family {
    kind: &'static str,
    series: Vec<(Key, SeriesValue)>,
}

enum SeriesValue {
    Counter(SharedValue),
    Gauge(SharedValue),
    Histogram(Arc<BucketHistogram>),
}

impl Exposition {
    pub(super) fn add_counter(&mut self, key: &Key, value: &SharedValue) {
        self.add(key, "counter", SeriesValue::Counter(Arc::clone(value)));
    }

    pub(super) fn add_gauge(&mut self, key: &Key, value: &SharedValue) {
        self.add(key, "gauge", SeriesValue::Gauge(Arc::clone(value)));
    }

    pub(super) fn add_histogram(&mut self, key: &Key, histogram: &Arc<BucketHistogram>) {
        let value = SeriesValue::Histogram(Arc::clone(histogram));
        self.add(key, "histogram", value);
    }

    fn add(&mut self, key: &Key, kind: &'static str, value: SeriesValue) {
        let series = (key.clone(), value);
        let name = valid_name(key.name(), true);
        // A lookup by `&str` first: a name has thousands of series.
        if let Some(family) = self.families.get_mut(&*name) {
            family.series.push(series);
        } else {
            let family = Family {
                kind,
                series: vec![series],
            };
            self.families.insert(name.into_owned(), family);
        }
    }

    /// The text of all families, ordered by name and labels.
    pub(super) fn write(self, help: &HelpTexts, application: &str) -> String {
        let mut out = String::new();
        for (name, family) in self.families {
            let mut names = family.series.iter().map(|(key, _)| key.name());
            if let Some(help) = names.find_map(|name| help.get(name)) {
                let _ = writeln!(out, "# HELP {name} {}", escape(help, false));
            }
            let _ = writeln!(out, "# TYPE {name} {}", family.kind);
            let series = family.series.iter();
            let mut series: Vec<(String, &SeriesValue)> = series
                .map(|(key, value)| (label_text(key, application), value))
                .collect();
            series.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            // The bounds of all histograms of a name are the same, so their text is made once.
            let mut bounds = Vec::new();
            for (labels, value) in series {
                write_series(&mut out, &name, &labels, value, &mut bounds);
            }
            out.push('\n');
        }
        out
    }
}

fn write_series(
    out: &mut String,
    name: &str,
    labels: &str,
    value: &SeriesValue,
    bounds: &mut Vec<String>,
) {
    match value {
        SeriesValue::Counter(value) => {
            push_sample(out, &[name, "{", labels], value.load(Ordering::Relaxed));
        }
        SeriesValue::Gauge(value) => {
            let value = f64::from_bits(value.load(Ordering::Relaxed));
            push_sample(out, &[name, "{", labels], Number(value));
        }
        SeriesValue::Histogram(histogram) => {
            if bounds.is_empty() {
                let all = histogram.bounds().iter().copied().chain([f64::INFINITY]);
                bounds.extend(all.map(|bound| Number(bound).to_string()));
            }
            write_histogram(out, name, labels, histogram, bounds);
        }
    }
}

/// Writes the cumulative buckets, the sum and the count.
fn write_histogram(
    out: &mut String,
    name: &str,
    labels: &str,
    histogram: &BucketHistogram,
    bounds: &[String],
) {
    let le = if labels.is_empty() { "le=\"" } else { ",le=\"" };
    let mut count = 0;
    for (bound, values) in bounds.iter().zip(histogram.counts()) {
        count += values;
        push_sample(out, &[name, "_bucket{", labels, le, bound, "\""], count);
    }
    let sum = Number(histogram.sum());
    push_sample(out, &[name, "_sum{", labels], sum);
    push_sample(out, &[name, "_count{", labels], count);
}

/// Writes a line. Most lines are buckets, so their parts are copied and only the value is formatted.
fn push_sample(out: &mut String, parts: &[&str], value: impl Display) {
    for part in parts {
        out.push_str(part);
    }
    // Writing to a string never fails.
    let _ = writeln!(out, "}} {value}");
}

/// A number as Prometheus writes it: infinity is `+Inf` or `-Inf`.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_infinite() {
            f.write_str(if self.0.is_sign_positive() {
                "+Inf"
            } else {
                "-Inf"
            })
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// The labels of a series, those of the key after `application`. A label `application` of the key wins.
fn label_text(key: &Key, application: &str) -> String {
    let mut text = String::with_capacity(96);
    let mut push = |name: &str, value: &str| {
        let comma = if text.is_empty() { "" } else { "," };
        let (name, value) = (valid_name(name, false), escape(value, true));
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    };
    if key.labels().all(|label| label.key() != "application") {
        push("application", application);
    }
    for label in key.labels() {
        push(label.key(), label.value());
    }
    text
}

/// A name with `_` in place of each character that no name may have. Metrics may have colons, labels may not.
fn valid_name(name: &str, allows_colon: bool) -> Cow<'_, str> {
    let is_valid = |(place, found): (usize, char)| {
        found.is_ascii_alphabetic()
            || found == '_'
            || (allows_colon && found == ':')
            || (place > 0 && found.is_ascii_digit())
    };
    if name.chars().enumerate().all(is_valid) {
        return name.into();
    }
    let chars = name.chars().enumerate();
    chars
        .map(|place| if is_valid(place) { place.1 } else { '_' })
        .collect()
}

/// Escapes backslashes and line feeds, and double quotes in the value of a label.
fn escape(text: &str, is_label: bool) -> Cow<'_, str> {
    if !text.contains(['\\', '\n', '"']) {
        return text.into();
    }
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_label {
        text.replace('"', "\\\"").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use metrics::{
        Recorder as _, counter, describe_counter, gauge, histogram, with_local_recorder,
    };

    use crate::metrics::recorder;

    #[test]
    fn every_kind_is_written_with_its_help_and_its_labels() {
        let recorder = recorder("shop");
        with_local_recorder(&recorder, || {
            describe_counter!("hits_total", "Hits \\ of \"all\"\nkinds.");
            describe_counter!("hits_total", "A later text.");
            counter!("hits_total", "policy" => "b").increment(7);
            counter!("hits_total", "policy" => "a\\\"\n").increment(1);
            gauge!("up", "application" => "other").set(f64::NAN);
            gauge!("most").set(f64::INFINITY);
            gauge!("1.odd", "key-1" => "x").set(0.5);
        });

        assert_eq!(
            recorder.handle().render(),
            "# TYPE __odd gauge\n\
                   __odd{application=\"shop\",key_1=\"x\"} 0.5\n\n\
                   # HELP hits_total Hits \\\\ of \"all\"\\nkinds.\n\
                   # TYPE hits_total counter\n\
                   hits_total{application=\"shop\",policy=\"a\\\\\\\"\\n\"} 1\n\
                   hits_total{application=\"shop\",policy=\"b\"} 7\n\n\
                   # TYPE most gauge\n\
                   most{application=\"shop\"} +Inf\n\n\
                   # TYPE up gauge\n\
                   up{application=\"other\"} NaN\n\n"
        );
    }

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative_and_end_with_the_count() {
        let recorder = recorder("shop");
        with_local_recorder(&recorder, || {
            for seconds in [0.004, 0.005, 7.0, 70.0] {
                histogram!(crate::metrics::RESPONSE_TIME).record(seconds);
            }
        });

        let text = recorder.handle().render();

        let name = crate::metrics::RESPONSE_TIME;
        for (part, value) in [
            ("_bucket{application=\"shop\",le=\"0.005\"}", "2"),
            ("_bucket{application=\"shop\",le=\"5\"}", "2"),
            ("_bucket{application=\"shop\",le=\"10\"}", "3"),
            ("_bucket{application=\"shop\",le=\"+Inf\"}", "4"),
            ("_sum{application=\"shop\"}", "77.009"),
            ("_count{application=\"shop\"}", "4"),
        ] {
            assert!(
                text.contains(&format!("\n{name}{part} {value}\n")),
                "{text}"
            );
        }
        assert_eq!(text.lines().count(), 1 + 12 + 2 + 1, "{text}");
    }

    #[test]
    fn names_that_are_written_alike_are_one_metric() {
        let recorder = recorder("shop");
        with_local_recorder(&recorder, || {
            describe_counter!("hits-total", "Hits.");
            counter!("hits.total", "policy" => "b").increment(7);
            counter!("hits_other").increment(1);
            counter!("hits-total", "policy" => "a").increment(1);
        });

        assert_eq!(
            recorder.handle().render(),
            "# TYPE hits_other counter\n\
             hits_other{application=\"shop\"} 1\n\n\
             # HELP hits_total Hits.\n\
             # TYPE hits_total counter\n\
             hits_total{application=\"shop\",policy=\"a\"} 1\n\
             hits_total{application=\"shop\",policy=\"b\"} 7\n\n"
        );
    }

    #[test]
    fn a_series_that_is_registered_twice_is_one() {
        let recorder = recorder("shop");
        let key = metrics::Key::from_name("hits_total");
        let metadata = metrics::Metadata::new("", metrics::Level::INFO, None);

        recorder.register_counter(&key, &metadata).increment(1);
        recorder.register_counter(&key, &metadata).increment(1);

        let text = recorder.handle().render();
        assert!(
            text.ends_with("hits_total{application=\"shop\"} 2\n\n"),
            "{text}"
        );
    }
}
