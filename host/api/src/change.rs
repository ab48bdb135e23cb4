//! Changes of the catalog for a caller, with a last check of the caller's key.
//!
//! **Promises.** A key that was revoked, or has expired, changes nothing. Minutes may pass between
//! the first check of the key and the change: the body arrives slowly, a component waits for its
//! compile, or an image is being fetched. So the change itself checks the key again, in the same
//! view of the catalog that it decides on.

use gristmill_core::catalog::{CatalogChange, View};
use gristmill_core::key::ApiKey;

use crate::auth::current;
use crate::error::ApiError;
use crate::state::ApiState;

impl ApiState {
    /// Changes the catalog as `decide` returns, if the caller's key is still valid. See
    /// [`Catalog::change_for`](gristmill_core::catalog::Catalog::change_for).
    ///
    /// # Errors
    /// Those of `decide` and of the catalog, and 401 when the key is not valid any more.
    pub(crate) async fn change<T>(
        &self,
        caller: &ApiKey,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), ApiError>,
    ) -> Result<T, ApiError> {
        let decide_if_held = |view: &View| {
            current(caller, view, self)?;
            decide(view)
        };
        self.catalog.change_for(caller, decide_if_held).await
    }
}
