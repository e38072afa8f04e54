//! Text from a peer, made fit to show.

/// Escapes everything in `text` that is not plainly printable; line breaks become `line_break`.
pub(crate) fn printable(text: &str, line_break: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push_str(line_break),
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// A number with its noun.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{number} {noun}")
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            printable("a \"b\"\n\u{1b}[2J\r\u{202e}\u{e9}", "; "),
            "a \"b\"; \\u{1b}[2J\\r\\u{202e}\u{e9}"
        );
    }

    #[test]
    fn numbers_have_their_noun() {
        for (number, text) in [(0, "0 batches"), (1, "1 batch"), (2, "2 batches")] {
            assert_eq!(counted(number, "batch", "batches"), text);
        }
    }

    #[test]
    fn hexadecimal() {
        assert_eq!(hex(&[0, 0xa5]), "00a5");
    }
}
