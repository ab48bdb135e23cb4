//! Text to tokens and back. A token is a word or a single punctuation mark.

/// The tokens of a text, in order.
pub fn tokenize(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start();
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = match rest.find(|c| !is_word(c)) {
            Some(0) => first.len_utf8(),
            Some(length) => length,
            None => rest.len(),
        };
        let (token, tail) = rest.split_at(length);
        rest = tail.trim_start();
        Some(token)
    })
}

/// The token with the white space that separates it from the token before.
pub fn spaced(token: &str) -> String {
    if token.starts_with(is_word) { format!(" {token}") } else { token.to_owned() }
}

/// The token at the beginning of a text.
pub fn capitalized(token: &str) -> String {
    let mut characters = token.chars();
    characters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '\''
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_punctuation_are_tokens() {
        let tokens: Vec<_> = tokenize("  The miller's wheel, über 3.5!\n").collect();
        assert_eq!(tokens, ["The", "miller's", "wheel", ",", "über", "3", ".", "5", "!"]);
        assert_eq!(tokenize(" \n").next(), None);
    }

    #[test]
    fn tokens_join_to_a_text() {
        let text: String = ["bread", ",", "and"].map(spaced).concat();
        assert_eq!(capitalized("élan") + &text, "Élan bread, and");
    }
}
