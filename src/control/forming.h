// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How the members of a group come together, written once over what they share: production works on
// a store and on a control plane, tests/model on words, in every order of events.
//
// The members meet in the store of the parent. A member that has met joins: it maps the new control
// plane, shows that it is there, and waits until all are. From then on that control plane tells of
// failures; until then the parent does, also of ranks that are no members. All members get the
// group or all get a failure, and none has to wait for its deadline to learn it.
//
// What a member returns as a cause is a pointer to a failure, or null.
namespace c10d { inline namespace v0 {

// Null: all have met. Else no member has, or each that has learns the same while it joins.
template <class Member>
auto meet(Member& member) -> decltype(member.parent_failure()) {
  member.come();
  while (true) {
    if (auto cause = member.parent_failure()) {
      // A rank that learned of the end of the attempt may have ended, which fails the parent.
      auto earlier = member.given_up();
      return earlier ? earlier : cause;
    }
    const bool all = member.await_members();  // for a moment
    if (all && member.close()) return {};
    if (auto cause = member.given_up()) return cause;
    if (!all) member.give_up_if_late();
  }
}

// Why a member that joins waits in vain, or null. To be asked in every wait until all have joined:
// another one may have met and then left because the parent failed, and it will not come.
template <class Member>
auto why_in_vain(Member& member) -> decltype(member.parent_failure()) {
  auto cause = member.told();
  if (!cause) cause = member.parent_failure();
  if (!cause) cause = member.dead_member();
  return cause;
}

// Null: all have joined. Else all members learn the cause that is returned: those without a control
// plane from the store, the others, of which some may have joined, from the control plane. The
// store is written first: what it says first is the cause for all.
template <class Member>
auto join(Member& member) -> decltype(member.map()) {
  auto cause = member.map();
  if (!cause) cause = member.await_all();
  if (!cause) return cause;
  cause = member.tell_in_store(cause);
  return member.has_mapped() ? member.tell_in_plane(cause) : cause;
}

}}  // namespace c10d::v0
