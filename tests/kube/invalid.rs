//! Tests invalid inputs. Each must be rejected with the file, the line and the problem. Unusual but valid inputs must
//! be edited.

use super::{file, inject_files, injected_text, uninjected};

/// A valid document of 10 lines.
const VALID: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: a\n    image: vllm\n    ports: [{name: http, containerPort: 8000}]\n---\n";

fn alias_bomb() -> String {
    let level = |it: usize| {
        let of = format!("*a{}, ", it - 1).repeat(8);
        format!("a{it}: &a{it} [{of}]\n")
    };
    let levels: String = (1..12).map(level).collect();
    format!("a0: &a0 [xxxxxxxx]\n{levels}")
}

#[test]
fn rejects_invalid_yaml_with_file_and_line() {
    let deep = format!("a: {}", "[".repeat(100_000));
    let deep_block: String = (0..200).map(|it| format!("{}a:\n", " ".repeat(it))).collect();
    let cases = [
        ("a: 1\nb: 2\na: 3\n", "line 13: duplicate key \"a\" (first in line 11); remove one"),
        ("\"a\": 1\na: 3\n", "line 12: duplicate key \"a\""),
        ("{a: 1, a: 2}\n", "line 11: duplicate key \"a\""),
        ("a: 1\n<<: x\n", "line 11: << merges only mappings; use an alias of a mapping"),
        ("a: !mine 1\n", "line 11: unsupported tag !mine"),
        ("a: !!binary aGk=\n", "line 11: unsupported tag !!binary"),
        (
            "? [a]\n: 1\n",
            "line 11: a key must be a scalar: JSON does not support lists and mappings as keys",
        ),
        ("null: 1\n", "line 11: a key must be a scalar: quote it to make it a string"),
        (
            "a: &x\n  b: *x\n",
            "line 12: the alias refers to a value that contains it; write the value out",
        ),
        ("a: *none\n", "line 11:4: invalid YAML"),
        ("a:\n\tb: 1\n", "line 12:"),
        ("a: [1, 2\nb: 3\n", "line 1"),
        ("a: \"open\n", "line 1"),
        ("a: .nan\n", "line 11: JSON does not support the number .nan; quote it"),
        ("a: b\0c\n", "line 11:"),
        (&deep, "line 11: more than 128 levels of nested values"),
        (&deep_block, "more than 128 levels of nested values"),
        (&alias_bomb(), "the aliases up to here expand to more than"),
    ];
    for (text, expected) in cases {
        let error = inject_files(&[file(format!("{VALID}{text}"))], "--mode inbound").unwrap_err();
        assert!(error.starts_with("x.yaml: line "), "{error}");
        assert!(error.contains(expected), "{error} is not {expected}");
        assert!(error.len() < 300, "{error}");
    }
}

/// Unusual but valid YAML is edited like any other.
#[test]
fn accepts_unusual_yaml() {
    let cases = [
        "yes: 1\n3: x\n1.5: y\n",
        "x: &x {a: 1}\ny: {<<: *x, b: 2}\n",
        "x: &x {a: 1}\ny:\n  <<: [*x, {c: 1}]\n",
        "x: !!str 1\ny: !!map {a: !!int 2}\n",
        "? a\n: 1\n",
        "# only a comment\n",
    ];
    for text in cases {
        let whole = format!("{VALID}{text}");
        let made = injected_text(&whole, "--mode inbound");
        assert_eq!(made.refused, 0, "{:#?}", made.messages);
        assert!(made.has_changes && made.text.ends_with(text), "{}", made.text);
        assert_eq!(uninjected(&made.text).text, whole);
    }
}
