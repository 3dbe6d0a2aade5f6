use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;
use crate::Compare;

fn line(second: u32, variant: &str, tps: f64) -> String {
    format!(
        r#"{{"time":"2026-01-01T00:00:{second:02}Z","outcome":"ok","times":{{"end":1}},"identity":{{"variant":"{variant}"}},"call":{{"labels":{{"model":"m","stream":true}},"rates":{{"output":{tps}}}}}}}"#
    )
}

fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> File {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    File { path, side: Side::Neither }
}

fn by_variant(files: &[File]) -> Request {
    let [a, b] = ["variant=a", "variant=b"].map(|side| side.parse().unwrap());
    Request {
        files: files.to_vec(),
        by: vec!["variant".parse().unwrap()],
        compare: Compare::Within { a, b },
        ..Request::default()
    }
}

#[test]
fn reads_plain_and_gzip_files_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        file(&folder, "log.1.gz", &packed(&format!("{}\n\n", line(2, "b", 2.0)))),
        file(&folder, "log", line(1, "a", 1.0).as_bytes()),
    ];
    let log = read(&by_variant(&files), Streams::new()).unwrap();
    let sides: Vec<Side> = log.rows.iter().map(|row| row.side).collect();
    assert_eq!(sides, [Side::B, Side::A]);
    assert_eq!(log.groups.iter().collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!((log.lines.read, log.lines.calls), (2, 2));
    assert_eq!(log.inputs[1].bytes, line(1, "a", 1.0).len() as u64);
    assert_ne!(log.inputs[0].sha256, log.inputs[1].sha256);
}

fn packed(text: &str) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

#[test]
fn counts_a_log_once_that_is_given_twice() {
    let folder = tempfile::tempdir().unwrap();
    // The second log differs from the first only after the prefix that selects candidates.
    let text: String = (0..1_000).map(|_| line(1, "a", 1.0) + "\n").collect();
    let longer = text.clone() + &line(2, "a", 1.0);
    let plain = file(&folder, "log.1", text.as_bytes());
    let files = [
        plain.clone(),
        file(&folder, "log.1.gz", &packed(&text)),
        file(&folder, "log.2.gz", &packed(&longer)),
        plain.clone(),
        file(&folder, "empty", b""),
        file(&folder, "empty too", b""),
    ];
    let log = read(&by_variant(&files), Streams::new()).unwrap();
    assert_eq!(log.lines.calls, 2_001);
    let of: Vec<bool> = log.inputs.iter().map(|input| input.duplicate_of.is_some()).collect();
    assert_eq!(of, [false, true, false, true, false, false]);
    assert_eq!(log.inputs[1].duplicate_of.as_deref(), plain.path.to_str());
    assert_eq!(log.inputs[1].bytes, packed(&text).len() as u64);
    assert_eq!(log.inputs[1].sha256, sha256(&packed(&text)));
    // Both sides of a comparison may be the same run.
    let sides = [Side::A, Side::B].map(|side| File { side, ..plain.clone() });
    let request = Request { compare: Compare::Runs, ..by_variant(&sides) };
    assert_eq!(read(&request, Streams::new()).unwrap().lines.calls, 2_000);
}

#[test]
fn counts_unreadable_lines_and_reads_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{}\nnot json\n{{\"time\":\"yesterday\",\"outcome\":\"ok\",\"call\":{{}}}}\n{}\n{}\n{{\"time\":\"2026",
        line(1, "a", 1.0),
        r#"{"time":"2026-01-01T00:00:00Z","outcome":"ok"}"#,
        line(2, "b", 1.0),
    );
    let long = [vec![b'['; blocks::BLOCK_BYTES + 1], b"\n".to_vec()].concat();
    let files = [
        file(&folder, "log", &[long, text.into_bytes()].concat()),
        file(&folder, "broken.gz", b"\x1f\x8b\x08 no gzip"),
    ];
    let only = vec!["variant=a".parse().unwrap()];
    let log = read(&Request { files: files.to_vec(), only, ..Request::default() }, Streams::new())
        .unwrap();
    let expected = Lines {
        read: 7,
        calls: 1,
        plain: 1,
        filtered: 1,
        outside: 0,
        unreadable: 3,
        too_long: 1,
        beyond: 0,
    };
    assert_eq!(log.lines, expected);
    assert_eq!(log.inputs[0].broken, None);
    assert!(log.inputs[1].broken.is_some());
}

#[test]
fn reports_the_path_of_a_missing_file() {
    let path = PathBuf::from("/nowhere/log");
    let files = [File { path, side: Side::Neither }];
    let error = read(&by_variant(&files), Streams::new()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nowhere/log"), "{error}");
}

#[test]
fn limits_the_number_of_groups() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..MAX_GROUPS + 5).map(|n| line(1, &format!("v{n}"), 1.0) + "\n").collect();
    let log = read(&by_variant(&[file(&folder, "log", text.as_bytes())]), Streams::new()).unwrap();
    assert_eq!(log.groups.iter().len(), MAX_GROUPS + 1);
    assert_eq!(log.rows.iter().filter(|row| row.group == 10_000).count(), 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Damages one place of a valid log. The undamaged lines must still be read.
    #[test]
    fn tolerates_damaged_logs(
        cut in 0_usize..600,
        length in 0_usize..200,
        garbage in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut text = (0..4).map(|n| line(n, "a", 1.0) + "\n").collect::<String>().into_bytes();
        let from = cut.min(text.len());
        let to = (from + length).min(text.len());
        text.splice(from..to, garbage);
        let text = [text.as_slice(), b"\n", line(9, "b", 1.0).as_bytes()].concat();
        let (log, rows) = batch::parse(&text, Side::Neither, &by_variant(&[]));
        let Lines { read, calls, plain, filtered, unreadable, .. } = log.lines;
        prop_assert_eq!(read, calls + plain + filtered + unreadable);
        prop_assert_eq!(rows.last().map(|row| row.side), Some(Side::B));
    }
}
