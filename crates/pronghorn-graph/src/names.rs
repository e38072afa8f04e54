//! Names that another party is shown: of models, nodes and classes.

/// Longest name, in bytes.
pub const MAX_NAME: usize = 256;

/// Whether a name may be printed as it is.
pub fn is_shown(name: &str) -> bool {
    name.len() <= MAX_NAME && !name.chars().any(is_hidden)
}

/// A name shortened and without hidden characters.
pub fn printable(name: &str) -> String {
    let kept = name.chars().map(|c| if is_hidden(c) { '?' } else { c });
    let mut length = 0;
    let fits = |c: &char| {
        length += c.len_utf8();
        length <= MAX_NAME
    };
    kept.take_while(fits).collect()
}

/// Names of classes for clients: all, or none where one is too long, or has hidden characters.
/// Clients would compare labels with another.
pub fn of_classes(names: &[String]) -> Vec<String> {
    match names.iter().all(|name| is_shown(name)) {
        true => names.to_vec(),
        false => Vec::new(),
    }
}

/// Whether a character is not shown, or changes how others are: controls, and what sets the
/// direction of a text. Joiners (U+200C and U+200D) belong to words.
fn is_hidden(c: char) -> bool {
    let alone = [
        '\u{ad}', '\u{34f}', '\u{61c}', '\u{180e}', '\u{200b}', '\u{3164}', '\u{feff}', '\u{ffa0}',
    ];
    let ranges = [
        '\u{115f}'..='\u{1160}',
        '\u{200e}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{fff9}'..='\u{fffb}',
        '\u{e0000}'..='\u{e007f}',
    ];
    c.is_control() || alone.contains(&c) || ranges.iter().any(|range| range.contains(&c))
}
