//! Limits of messages, batches and kept state, which protocols count with and keep to.

/// Most images in one batch whatever the memory: more gain nothing.
pub const MAX_BATCH: usize = 16_384;

/// Bytes of the seed of `a` in a step's first message.
pub const SEED_BYTES: usize = 32;

/// Words of one message of a stream of words.
pub const WORDS_PER_MESSAGE: usize = 1 << 17;

/// Most images that one publication of the coefficient engine serves, each under its own secret of
/// the client. The choice of moduli pays the bits of security that so many cost.
pub const PUBLICATION_IMAGES: usize = 1 << 20;

/// Images that a client counts for a connection when it names a publication; then it names one
/// again.
pub const PUBLICATION_GRANT: usize = PUBLICATION_IMAGES >> 6;

/// Bytes of published polynomials that a client keeps ready for use. Where there are more it keeps
/// them as they came, half as large, and unpacks those of a step for each batch.
pub const MOST_READY: u64 = 256 << 20;

/// Most bytes of secrets behind published polynomials that a server keeps ready for a connection.
/// Others are made for each batch.
pub const MOST_SECRETS: u64 = 64 << 20;

/// Most bytes of rows of `a'` that a client keeps for later batches.
pub const MOST_PUBLISHED: u64 = 256 << 20;

/// Most blocks of `N` images, each under its own secret, that one `a` of the client and one `a'`
/// serve. Then the next batch makes new ones.
pub const PUBLISHED_BLOCKS: usize = 1 << 10;
