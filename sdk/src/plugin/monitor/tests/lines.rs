//! Lines, whole and cut.

use proptest::prelude::*;

use crate::plugin::monitor::lines::{Line, Lines};

fn cut<'a>(max: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Line> {
    let (mut lines, mut told) = (Lines::new(max), Vec::new());
    for chunk in chunks {
        lines.push(chunk, &mut told);
    }
    lines.end(&mut told);
    told
}

fn texts(max: usize, output: &[u8]) -> Vec<String> {
    cut(max, [output]).into_iter().map(|line| line.text).collect()
}

#[test]
fn three_endings_end_a_line_and_blank_ones_are_dropped() {
    assert_eq!(texts(100, b"a\nb\r\nc\rd"), ["a", "b", "c", "d"]);
    assert_eq!(texts(100, b"\n \t \r\n\r\n  a b\t\n\n"), ["a b"]);
    assert!(texts(100, b"").is_empty());
}

#[test]
fn what_is_no_utf8_is_replaced() {
    assert_eq!(texts(100, b"a\xffb\n\xe2\x82\n"), ["a\u{fffd}b", "\u{fffd}"]);
}

#[test]
fn a_line_over_the_limit_is_told_once_at_once_and_marked() {
    let (mut lines, mut told) = (Lines::new(4), Vec::new());
    lines.push(b"abcde", &mut told);
    assert_eq!(told, [Line { text: "abcd".to_owned(), truncated: true }], "before it has ended");
    lines.push(b"fgh\nnext\n", &mut told);
    assert_eq!(told[1..], [Line { text: "next".to_owned(), truncated: false }]);
}

#[test]
fn blanks_around_a_line_do_not_count_for_its_length() {
    let told = cut(4, [&b"      abcd      \n      abcd      e\n"[..]]);
    let expected = [("abcd", false), ("abcd", true)];
    assert!(told.iter().map(|line| (line.text.as_str(), line.truncated)).eq(expected), "{told:?}");
}

#[test]
fn no_character_is_cut_in_two() {
    assert_eq!(texts(4, "aß€€".as_bytes()), ["aß"]);
    assert_eq!(texts(4, "😀😀".as_bytes()), ["😀"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_do_not_depend_on_how_an_output_is_cut_up(
        output in prop::collection::vec(prop::sample::select(&b"ab \n\r\xff\xc3"[..]), 0..200),
        sizes in prop::collection::vec(1..9_usize, 1..200),
        max in 4..12_usize,
    ) {
        let (mut rest, mut chunks) = (&output[..], Vec::new());
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, behind) = rest.split_at((*size).min(rest.len()));
            chunks.push(chunk);
            rest = behind;
        }
        prop_assert_eq!(cut(max, chunks), cut(max, [&output[..]]));
    }
}
