//! What a planted bug needs to show: workloads of its class.

use super::super::bug::Bug;
use super::{Ask, Between, Plan, Stores, What};
use weir_flow::cache::writeback::{Mode, Order};

impl Plan {
    /// The same with what a planted bug needs to show: without a late write none lands too late.
    pub(in super::super) fn provoking(mut self, bug: Option<Bug>) -> Self {
        use Bug as B;
        let Some(bug) = bug else { return self };
        if self.stores != Stores::One {
            self = Self::on_one_store(self.seed, true);
        }
        if (bug as u32) < B::UpdatePastTheLog as u32 {
            // It shows without updates, large batches and rot, and there more often.
            self = Self::crossing(self.seed);
        }
        let late = |plan: &mut Self, paths: u32, outage: u64| {
            (plan.late, plan.paths, plan.outage) = (true, plan.paths.max(paths), outage);
            plan.upstream_faults = 10;
        };
        match bug {
            B::HeldWritesNotHeld | B::HelperOfAnotherName | B::ResetTakenForOwnPath => {
                late(&mut self, 2, 60);
            }
            B::SessionsOfOtherNames
            | B::HeldWritesForgotten
            | B::HeldWritesTakenForDone
            | B::LostFlushTakenForDone => late(&mut self, 1, 20),
            B::AbandonedReadAnswers => self.paths = self.paths.max(2),
            B::KeyNotAdvanced | B::UsedBeforeClaimed => {
                late(&mut self, 2, 20);
                (self.fence, self.moves, self.rivals) = (true, true, 0);
            }
            B::PreemptWithoutAbort
            | B::RegisteredAgain
            | B::StaleLogTakesOver
            | B::ReleasedUnitTakenBack
            | B::ConflictTakenForDone => {
                late(&mut self, 1, 4);
                (self.fence, self.rivals) = (true, 20);
            }
            B::OldModeKept | B::OldOrderKept | B::MisfitMadeNew => self.changes = true,
            B::DamageMadeNew | B::DamageCutOff | B::RottenPayloadServed => self.rot = true,
            B::NoSpaceTakenForDone => self.full = 10,
            B::UnitResetUntold
            | B::ResetFlushTakenForDone
            | B::LossForgotten
            | B::ResetTakenForLoss => {
                self.unit_resets = 10;
                self.settings.upstream_flush = true;
            }
            B::DeferredErrorUntold => {
                self.deferred = 10;
                self.settings.upstream_flush = true;
            }
            B::UpdatePastTheLog | B::UpdateFuaDropped | B::MiscompareWritten => {
                self.updating();
                self.settings.upstream_flush = true;
            }
            B::ComparedAgain => {
                late(&mut self, 1, 4);
                self.updating();
            }
            B::AtomicRecordForgotten | B::AtomicRecordVolatile | B::AtomicRecordKept => {
                (self.late, self.paths, self.fence, self.rivals) = (false, 1, false, 0);
                self.updating();
            }
            B::ForgottenUnitTaken => {
                late(&mut self, 1, 4);
                (self.fence, self.rivals, self.forgets) = (true, 20, true);
            }
            B::TableUnbound => {
                // One full batch after the other, and nothing that makes them differ.
                self.enlarge(20);
                self.decays(0);
                (self.upstream_faults, self.resets, self.full) = (0, 0, 0);
                (self.unit_resets, self.deferred) = (0, 0);
                (self.settings.mode, self.settings.order) = (Mode::Log, Order::Flush);
                self.lives.truncate(1);
            }
            B::CopyAnsweredEarly | B::CopyForwards | B::CopyStaleBuffer | B::CopyPastTheLog => {
                self.copying();
            }
            B::CopyFailureHidden => {
                self.decays(20);
                self.copying();
            }
            B::CopyOnOtherLink => {
                self.copying();
                self.copies_of_a_silent_host();
            }
            B::OneStoreFlushed | B::FirstStoreAnswers | B::StoreResetUntold => {
                self.spread();
                self.settings.upstream_flush = true;
                if bug == B::StoreResetUntold {
                    (self.unit_resets, self.full, self.local_faults) = (40, 0, 0);
                }
            }
            B::LostWriteNotRepeated => {
                (self.paths, self.fence, self.rivals) = (2, false, 0);
                (self.unit_resets, self.resets, self.upstream_faults) = (40, 0, 0);
                (self.full, self.local_faults, self.settings.upstream_flush) = (0, 0, true);
                for life in &mut self.lives {
                    life.retain(|ask| !matches!(ask.what, What::Drain(_)));
                    life.insert(0, Ask { host: 0, what: What::Drain(true) });
                }
            }
            B::CopiesVolatile
            | B::SegmentGivenUpEarly
            | B::CopyOfOtherData
            | B::CopiesForgotten
            | B::CopyTakenForWrite
            | B::OldestCopiesForgotten => {
                self = Self::plain(self.seed);
                self.overwrites();
            }
            B::TornHeadersBelieved | B::SupersAtOnce => self.tears = true,
            B::OneSuperAnnounces => {
                self.updating();
                (self.rot, self.settings.upstream_flush) = (true, true);
            }
            B::PartlyLoggedHeals => self.decays(20),
            B::QuarantineForgotten | B::QuarantineKeptEarly | B::RottenWrittenBack => {
                self.decays(20);
            }
            B::HealFuaDropped => {
                self.decays(20);
                self.settings.upstream_flush = true;
            }
            _ => {}
        }
        self
    }

    /// The first host has blocks copied and does not write otherwise, and never flushes; all others do.
    fn copies_of_a_silent_host(&mut self) {
        (self.silent, self.settings.order) = (1, Order::Auto);
        for ask in self.lives.iter_mut().flatten() {
            let copies = matches!(&ask.what, What::Copy(copy) if copy.between != Between::OutOf);
            ask.host = u64::from(!copies);
        }
        self.changes = false;
    }
}
