//! The connections of callers, from their acceptance to their last byte, with what they may hold.
//!
//! Nothing here knows a job, a store or a route. An [`Answerer`] answers each call, and records its
//! key in the [`CallOrigin`].
//!
//! # Promises
//! hyper-util reads and writes HTTP. This crate keeps what hyper-util has no notion of. The tests
//! are those of `tests/product/edge`.
//!
//! A connection without a call:
//! * It waits for a place while connections with keys have taken all, and takes none that another
//!   address, owner or use needs: `connections::connections_beyond_the_bound_wait`,
//!   `connections::silent_strangers_keep_nobody_out_and_make_no_share_smaller`,
//!   `connections::one_address_without_a_key_does_not_take_the_connections_of_all`,
//!   `connections::the_keys_of_one_owner_do_not_take_the_connections_of_all`,
//!   `connections::a_host_that_runs_out_of_files_waits_for_one`.
//! * Its TLS handshake, its head and its pauses have a time, also if it speaks HTTP/2:
//!   `tls::a_handshake_that_does_not_end_is_given_up`,
//!   `connections::a_head_that_comes_too_slowly_ends_its_connection`,
//!   `connections::a_preface_that_stops_ends_its_connection`,
//!   `connections::a_connection_without_a_call_is_closed`,
//!   `http2::a_connection_may_be_opened_ahead_of_its_first_call`.
//! * It ends when its key is no longer valid:
//!   `connections::a_revoked_key_keeps_no_connection_by_calls_that_need_no_key`.
//!
//! A connection with a call:
//! * A head has a size, and so has all that a caller without a valid key makes the host keep:
//!   `heads::a_head_has_100_lines_at_most`, `http2::a_head_that_is_too_large_is_refused`,
//!   `unauthenticated::heads_of_one_address_without_a_key_take_little_memory`,
//!   `unauthenticated::the_connection_that_holds_the_most_makes_room_and_gets_no_more`.
//! * The number of streams, and of their resets, is bounded:
//!   `http2::streams_beyond_the_bound_are_refused`, `http2::a_flood_of_resets_ends_its_connection`.
//! * A client that ends its side with its request is answered; one that ends it later has left, and
//!   its call ends: `half_close::a_client_that_ends_its_side_after_its_call_is_answered`,
//!   `half_close::a_client_that_ends_its_side_later_has_left`,
//!   `half_close::an_end_in_the_middle_of_a_body_ends_the_call_at_once`.
//! * An answer that is not read holds its memory for a time:
//!   `http2::an_answer_that_is_never_read_to_its_end_ends_its_connection`.
//!
//! An answer before the end of the request's body:
//! * It arrives, whatever the client still sends, and without a reset:
//!   `early_answers::a_large_body_is_taken_before_the_connection_ends`,
//!   `early_answers::a_client_that_reads_and_writes_at_once_gets_its_answer`,
//!   `early_answers::a_refused_head_is_answered_however_much_follows`,
//!   `early_answers_http2::a_refusal_before_a_small_body_arrives_whole_and_without_a_reset`.
//! * After a short rest the connection stays open, and no rest holds it for long:
//!   `early_answers::a_short_rest_of_a_body_is_read_and_the_connection_stays_open`,
//!   `early_answers::a_body_that_waits_for_100_continue_is_not_requested`,
//!   `early_answers::a_refused_client_cannot_hold_the_connection`.
//!
//! A host that ends answers what has begun:
//! `connections::connections_from_before_the_drain_are_answered`,
//! `connections::a_drain_ends_quiet_connections`. A certificate is replaced without a lost call:
//! `tls::a_new_certificate_drops_no_call`.
//!
//! # Left to a proxy in front
//! Several certificates, certificates of clients, HTTP/3, rules for addresses, and a log of all
//! calls: a proxy has them, and needs none of the above to be switched off. Its address counts as
//! one caller until a call on the connection has shown a valid key.
//!
//! Each module has its bounds and its costs in its first lines.

mod activity;
mod addresses;
mod answer_body;
mod answerer;
mod call_origin;
mod connection;
mod connection_headers;
mod connection_shares;
mod forwarded;
mod half_close;
mod handshake_turns;
mod interrupts;
mod linger;
mod listener;
mod protocol;
mod read_turns;
mod response_budget;
mod thread_time;
mod tls;
mod trusted_proxies;
mod unauthenticated;
mod unread;
mod watched;

pub use addresses::{Account, AddressBound, Addresses, AllBound, CONNECTION_BYTES};
pub use answerer::Answerer;
pub use call_origin::{CallOrigin, PeerAddress};
pub use connection::Server;
pub use connection_headers::remove_named_by_connection;
pub use connection_shares::{ConnectionAuth, OwnerAtShare};
pub use forwarded::{ANSWER_END, ForwardedCalls, TRANSPORT};
pub use listener::{ACCEPT_PAUSE, Accepted, ConnectionLimits, Connections, accept, serve};
pub use response_budget::{AnswerOwner, ResponseBudget, SMALL_ANSWER_BYTES};
pub use tls::{CertificateExpiry, Tls, TlsFiles};
pub use trusted_proxies::TrustedProxies;
pub use unread::RequestBody;
