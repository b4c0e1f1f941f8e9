//! A small reader of XML, strict enough for a drawing.

/// The elements of a drawing, in the order of their starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SvgDocument(Vec<SvgElement>);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct SvgElement {
    pub(super) name: String,
    attributes: Vec<(String, String)>,
    /// The index of the element around it.
    parent: Option<usize>,
    index: usize,
    text: String,
}

impl SvgElement {
    pub(super) fn attribute(&self, name: &str) -> &str {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

impl SvgDocument {
    /// Parses a document, and panics where it is not well-formed.
    pub(super) fn parse(text: &str) -> SvgDocument {
        let mut elements: Vec<SvgElement> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find('<') {
            let (before, tag) = rest.split_at(start);
            if let Some(inside) = open.last() {
                elements[*inside].text.push_str(&unescaped(before));
            } else {
                assert!(before.trim().is_empty(), "text outside: {before}");
            }
            let end = tag.find('>').expect("a tag that ends");
            let (tag, after) = (&tag[1..end], &tag[end + 1..]);
            rest = after;
            if let Some(name) = tag.strip_prefix('/') {
                let closed = open.pop().expect("an element that is open");
                assert_eq!(elements[closed].name, name);
                continue;
            }
            let (tag, is_empty) = match tag.strip_suffix('/') {
                Some(tag) => (tag, true),
                None => (tag, false),
            };
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let index = elements.len();
            elements.push(SvgElement {
                name: name.to_owned(),
                attributes: attributes_of(attributes),
                parent: open.last().copied(),
                index,
                text: String::new(),
            });
            if !is_empty {
                open.push(index);
            }
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{rest}");
        SvgDocument(elements)
    }

    pub(super) fn elements(&self) -> &[SvgElement] {
        &self.0
    }

    pub(super) fn with_class(&self, class: &str) -> impl Iterator<Item = &SvgElement> {
        self.0.iter().filter(move |element| {
            let mut classes = element.attribute("class").split(' ');
            classes.any(|one| one == class)
        })
    }

    /// The contents of all texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let texts = self.0.iter().filter(|element| element.name == "text");
        texts.map(|element| &*element.text)
    }

    fn children_of<'a>(
        &'a self,
        parent: &'a SvgElement,
        name: &'a str,
    ) -> impl Iterator<Item = &'a SvgElement> {
        let inside = |element: &&SvgElement| element.parent == Some(parent.index);
        self.0
            .iter()
            .filter(inside)
            .filter(move |element| element.name == name)
    }

    /// The number of children of that name.
    pub(super) fn children(&self, parent: &SvgElement, name: &str) -> usize {
        self.children_of(parent, name).count()
    }

    /// The text of the first child of that name.
    pub(super) fn child_text<'a>(
        &'a self,
        parent: &'a SvgElement,
        name: &'a str,
    ) -> Option<&'a str> {
        let mut children = self.children_of(parent, name);
        children.next().map(|child| &*child.text)
    }
}

fn attributes_of(text: &str) -> Vec<(String, String)> {
    let mut attributes = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("a quoted attribute");
        let (value, after) = after.split_once('"').expect("a closing quote");
        attributes.push((name.trim().to_owned(), unescaped(value)));
        rest = after.trim_start();
    }
    attributes
}

/// Text with its entities resolved.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('&');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (entity, rest) = part.split_once(';').expect("an entity that ends");
        plain.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            other => panic!("the entity {other}"),
        });
        plain.push_str(rest);
    }
    let is_allowed = |letter: char| letter == '\n' || !letter.is_control();
    assert!(plain.chars().all(is_allowed), "{plain:?}");
    plain
}
