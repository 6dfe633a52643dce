// Doubly linked lists with nodes that are reused: they keep their order, remove any node in
// constant time, and stop allocating once the largest number of nodes in use has been reached. T
// has members `T* previous` and `T* next`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace pc {

template <class T>
class NodePool {
 public:
  T* take() {
    if (free_ == nullptr) return nodes_.emplace_back(std::make_unique<T>()).get();
    T* node = free_;
    free_ = node->next;
    *node = T{};
    return node;
  }
  void give_back(T* node) {
    node->next = free_;
    free_ = node;
  }

 private:
  std::vector<std::unique_ptr<T>> nodes_;
  T* free_ = nullptr;
};

template <class T>
class NodeList {
 public:
  bool empty() const { return first_ == nullptr; }
  std::size_t size() const { return size_; }
  T* front() const { return first_; }
  void push_back(T* node) {
    node->previous = last_;
    node->next = nullptr;
    (last_ != nullptr ? last_->next : first_) = node;
    last_ = node;
    ++size_;
  }
  void remove(T* node) {
    (node->previous != nullptr ? node->previous->next : first_) = node->next;
    (node->next != nullptr ? node->next->previous : last_) = node->previous;
    --size_;
  }
  template <class Is>
  T* find(Is&& is) const {
    for (T* node = first_; node != nullptr; node = node->next) {
      if (is(*node)) return node;
    }
    return nullptr;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  std::size_t size_ = 0;
};

// First in, first out, in one vector that keeps its capacity.
template <class T>
class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  void push(const T& item) { items_.push_back(item); }
  const T& front() const { return items_[head_]; }
  T pop() {
    T item = items_[head_++];
    if (head_ == items_.size()) {
      clear();
    } else if (head_ >= 64 &&
               head_ * 2 >= items_.size()) {  // otherwise a queue that is never empty would only grow
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return item;
  }
  // Removes the first match. Returns false if there is none.
  template <class Is>
  bool remove(Is&& is) {
    for (std::size_t i = head_; i < items_.size(); ++i) {
      if (!is(items_[i])) continue;
      items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }
  void replace(const T& what, const T& by) {
    std::replace(items_.begin() + static_cast<std::ptrdiff_t>(head_), items_.end(), what, by);
  }
  std::size_t size() const { return items_.size() - head_; }
  void clear() {
    items_.clear();
    head_ = 0;
  }

 private:
  std::vector<T> items_;
  std::size_t head_ = 0;
};

}  // namespace pc
