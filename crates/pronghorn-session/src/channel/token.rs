//! Bearer tokens, and the proof of one that is bound to a channel.
//!
//! A token is `NAME.SECRET`. It never goes over the line: the client sends a hash, keyed by the
//! token, of the channel's exporter (RFC 8446, section 7.5). So whoever opens the line with a
//! certificate that the client accepts does not learn the token, and cannot use the proof on a
//! channel of its own.

use std::{fmt, path::Path};

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

use super::{
    binding::Binding,
    error::ChannelError,
    files::{content, secret},
};

/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 32;

/// Fewest characters of a token's secret: 128 bits in base 64.
const LEAST_SECRET: usize = 22;

/// Most characters of a token.
const MOST: usize = 512;

const KEY: &str = "pronghorn 2026 proof of a client's token";

/// A client's token. Wiped on drop; its Debug shows the name alone.
#[derive(Clone)]
pub struct Token {
    text: Zeroizing<String>,
    name: usize,
}

impl Token {
    /// Reads `NAME.SECRET`; the secret has at least 22 characters, and the name has letters, digits,
    /// `-` and `_`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (name, secret) = text.split_once('.')?;
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_sound = !name.is_empty()
            && name.chars().all(named)
            && secret.len() >= LEAST_SECRET
            && text.len() <= MOST
            && secret.chars().all(|c| c.is_ascii_graphic());
        is_sound.then(|| Self {
            text: Zeroizing::new(text.to_owned()),
            name: name.len(),
        })
    }

    /// The token of a client's file.
    ///
    /// # Errors
    /// When it cannot be read, others can read it, or it holds no token.
    pub fn read(path: &Path) -> Result<Self, ChannelError> {
        let bytes = secret(path)?;
        let text = str::from_utf8(&bytes).unwrap_or_default();
        Self::parse(text).ok_or_else(|| content(path, FORM))
    }

    /// Whose it is.
    pub fn name(&self) -> &str {
        &self.text[..self.name]
    }

    /// What shows that this party has the token, on this channel alone.
    pub(crate) fn proof(&self, binding: &Binding) -> [u8; PROOF_BYTES] {
        let mut key = blake3::derive_key(KEY, self.text.as_bytes());
        let mut hasher = blake3::Hasher::new_keyed(&key);
        hasher.update(binding.as_bytes());
        let proof = *hasher.finalize().as_bytes();
        hasher.zeroize();
        key.zeroize();
        proof
    }
}

const FORM: &str =
    "holds no token: it is NAME.SECRET, as `pronghorn keys DIR --token NAME` makes it";

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.name())
    }
}

/// The tokens that a server takes.
#[derive(Clone, Default)]
pub(super) struct Tokens(Vec<Token>);

impl Tokens {
    /// One a line; empty lines and those that begin with `#` are left out.
    pub(super) fn read(path: &Path) -> Result<Self, ChannelError> {
        let bytes = secret(path)?;
        let text = str::from_utf8(&bytes).map_err(|_| content(path, FORM))?;
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let tokens = lines.map(|(index, line)| {
            let wrong = || content(path, format!("line {}: {FORM}", index + 1));
            Token::parse(line).ok_or_else(wrong)
        });
        Ok(Self(tokens.collect::<Result<_, _>>()?))
    }

    /// The name of the token that a proof is of. Every token is tried, and each in constant time.
    pub(super) fn named(&self, binding: &Binding, proof: &[u8]) -> Option<String> {
        let (mut place, mut is_known) = (0u64, Choice::from(0));
        for (index, token) in self.0.iter().enumerate() {
            let equal = token.proof(binding)[..].ct_eq(proof);
            place.conditional_assign(&(index as u64), equal);
            is_known |= equal;
        }
        bool::from(is_known).then(|| self.0[place as usize].name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_names_and_long_secrets() {
        let secret = "0123456789abcdefghijkl";
        let token = Token::parse(&format!(" alice-1.{secret}\n")).expect("it is sound");
        assert_eq!(token.name(), "alice-1");
        assert!(!format!("{token:?}").contains(secret));
        for wrong in [
            secret.to_owned(),
            format!(".{secret}"),
            format!("a b.{secret}"),
            format!("alice.{}", &secret[1..]),
            format!("alice.{secret}\u{e9}"),
            format!("alice.{}", "x".repeat(MOST)),
        ] {
            assert!(Token::parse(&wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_proof_is_of_one_token_and_one_channel() {
        let token = |name: &str| Token::parse(&format!("{name}.0123456789abcdefghijkl")).unwrap();
        let (here, there) = (Binding::new([1; 32]), Binding::new([2; 32]));
        let tokens = Tokens(vec![token("alice"), token("bob")]);
        let proof = token("bob").proof(&here);
        assert_eq!(tokens.named(&here, &proof).as_deref(), Some("bob"));
        assert_eq!(tokens.named(&there, &proof), None);
        assert_eq!(tokens.named(&here, &token("carol").proof(&here)), None);
        for wrong in [&proof[1..], &[], &[0; 33]] {
            assert_eq!(tokens.named(&here, wrong), None);
        }
        for bit in 0..256 {
            let mut flipped = proof;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(tokens.named(&here, &flipped), None);
        }
    }
}
