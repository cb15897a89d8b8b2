//! What a registry is asked to do, for errors.

use std::fmt;

use snowflake_core::fleet::registry::{RecordChange, Swap};

/// What a connection is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryStep {
    /// Connecting, to each of the hosts that the string names.
    Connect,
    /// Reading records.
    Read,
    /// Changing the fleet's record.
    SwapFleet,
    /// Changing a number's record.
    SwapNumber,
    /// Changing tags' records.
    SwapTags,
    /// Changing what only operators change.
    Change,
}

impl RegistryStep {
    /// Returns what a swap changes first.
    pub(crate) fn of(swap: &Swap) -> Self {
        match swap.changes.first() {
            None | Some(RecordChange::Fleet(_)) => Self::SwapFleet,
            Some(RecordChange::Number { .. } | RecordChange::DropNumber { .. }) => Self::SwapNumber,
            Some(RecordChange::Tag { .. }) => Self::SwapTags,
        }
    }

    /// Whether the registry may have changed something although there is no answer.
    pub fn may_be_done(self) -> bool {
        !matches!(self, Self::Connect | Self::Read)
    }
}

impl fmt::Display for RegistryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Read => "reading its records",
            Self::SwapFleet => "changing the fleet's record",
            Self::SwapNumber => "changing a number's record",
            Self::SwapTags => "changing tags' records",
            Self::Change => "changing the registry",
        })
    }
}
