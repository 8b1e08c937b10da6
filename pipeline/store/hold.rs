//! A place where a run can be made to stand still, for tests that kill or interrupt one: no clock says how far a run
//! is. `POTABLE_HOLD=N:PART:FILE` makes FILE when N files whose paths contain PART have got their names and another is
//! whole, and gives no more names of that kind until FILE is gone. Nothing that is written depends on it.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

struct Hold {
    after: usize,
    part: String,
    gate: PathBuf,
    seen: AtomicUsize,
}

static HOLD: LazyLock<Option<Hold>> = LazyLock::new(|| {
    let text = std::env::var("POTABLE_HOLD").ok()?;
    let mut words = text.splitn(3, ':');
    let (after, part, gate) = (words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?);
    Some(Hold { after, part, gate: gate.into(), seen: AtomicUsize::new(0) })
});

/// The run was asked to stop: whoever stands still goes on, and sees it.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// To be called before a file that is whole gets its name.
pub(crate) fn before_naming(path: &Path) {
    let Some(hold) = HOLD.as_ref().filter(|hold| path.to_string_lossy().contains(&hold.part)) else { return };
    let number = hold.seen.fetch_add(1, Ordering::Relaxed);
    if number == hold.after {
        let _without_it_nothing_is_held =
            OpenOptions::new().write(true).create(true).truncate(true).open(&hold.gate);
    }
    while number >= hold.after && hold.gate.exists() && !STOPPED.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets everyone go on for good.
pub(crate) fn release() {
    STOPPED.store(true, Ordering::Relaxed);
}
