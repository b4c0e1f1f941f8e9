//! The fields of `[package]` that the registry and docs.rs show.

use serde_json::json;

use crate::workspace::Package;

/// The categories of crates.io that our crates use; another one is added after a look at <https://crates.io/category_slugs>.
const CATEGORIES: [&str; 7] = [
    "algorithms",
    "asynchronous",
    "command-line-utilities",
    "development-tools::procedural-macro-helpers",
    "network-programming",
    "web-programming",
    "web-programming::http-server",
];

const MAX_KEYWORDS: usize = 5;
const MAX_CATEGORIES: usize = 5;
const MAX_KEYWORD_LENGTH: usize = 20;

pub(super) fn problems(package: &Package) -> Vec<String> {
    let fields = &package.fields;
    let name = &package.name;
    let mut problems = Vec::new();
    let mut require = |holds: bool, problem: &str| {
        if !holds {
            problems.push(format!("{name}: {problem}"));
        }
    };
    require(has_text(package.description.as_ref()), "no description");
    require(has_text(package.license.as_ref()), "no license");
    require(
        fields.readme.as_deref() == Some("README.md"),
        "`readme` is not README.md",
    );
    require(has_text(fields.rust_version.as_ref()), "no rust-version");
    require(
        (1..=MAX_KEYWORDS).contains(&fields.keywords.len()),
        "one to five keywords are allowed",
    );
    for keyword in &fields.keywords {
        require(
            is_keyword(keyword),
            &format!("crates.io refuses the keyword `{keyword}`"),
        );
    }
    require(
        (1..=MAX_CATEGORIES).contains(&fields.categories.len()),
        "one to five categories are allowed",
    );
    for category in &fields.categories {
        require(
            CATEGORIES.contains(&category.as_str()),
            &format!("`{category}` is not a known category"),
        );
    }
    let docs_rs = fields.metadata.pointer("/docs/rs");
    let expected = json!({ "all-features": true, "rustdoc-args": ["--cfg", "docsrs"] });
    require(
        docs_rs == Some(&expected),
        "[package.metadata.docs.rs] does not show all features",
    );
    problems
}

fn has_text(field: Option<&String>) -> bool {
    field.is_some_and(|text| !text.trim().is_empty())
}

fn is_keyword(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.len() <= MAX_KEYWORD_LENGTH
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-+".contains(c))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn package() -> Value {
        json!({
            "id": "a", "name": "a", "version": "1.0.0", "dependencies": [], "targets": [], "publish": null,
            "manifest_path": "Cargo.toml",
            "license": "MIT", "description": "A.",
            "readme": "README.md", "rust_version": "1.89",
            "keywords": ["rate-limit"], "categories": ["algorithms"],
            "metadata": { "docs": { "rs": { "all-features": true, "rustdoc-args": ["--cfg", "docsrs"] } } },
        })
    }

    fn found(field: &str, value: Value) -> Vec<String> {
        let mut package = package();
        package[field] = value;
        problems(&serde_json::from_value(package).unwrap())
    }

    #[test]
    fn a_complete_package_passes() {
        assert_eq!(found("description", json!("A.")), [""; 0]);
    }

    #[test]
    fn each_missing_field_is_a_problem() {
        let fields = [
            "description",
            "license",
            "readme",
            "rust_version",
            "metadata",
        ];
        for field in fields {
            assert_eq!(found(field, Value::Null).len(), 1, "{field}");
        }
        for field in ["keywords", "categories"] {
            assert_eq!(found(field, json!([])).len(), 1, "{field}");
        }
    }

    #[test]
    fn words_that_crates_io_refuses_are_found() {
        let refused = ["-a", "a b", "aaaaaaaaaaaaaaaaaaaaa", "ä"];
        for word in refused {
            assert_eq!(
                found("keywords", json!([word])),
                [format!("a: crates.io refuses the keyword `{word}`")]
            );
        }
        assert_eq!(
            found("keywords", json!(["a", "b", "c", "d", "e", "f"])).len(),
            1
        );
        assert_eq!(found("categories", json!(["limits"])).len(), 1);
    }
}
