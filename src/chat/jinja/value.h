// The values of the template language: Python's types as far as chat templates can tell them apart.
// Containers are immutable once made (the sandbox refuses mutation), except namespaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace doppler::chat::jinja {

// 128 bits hold every JSON integer and leave room for arithmetic on them; Python's are unbounded.
__extension__ typedef __int128 Integer;

// Counts what a render allocates, so that a small template cannot fill the memory. Objects report their own
// size when made and when freed; Runtime::spend turns an exceeded limit into an error.
class Heap {
 public:
  Heap(std::uint64_t live_limit, std::uint64_t total_limit)
      : live_limit_(live_limit), total_limit_(total_limit) {}
  void charge(std::size_t bytes) {
    live_ += bytes;
    total_ += bytes;
  }
  void release(std::size_t bytes) { live_ -= bytes; }
  bool exhausted() const { return live_ > live_limit_ || total_ > total_limit_; }

 private:
  std::uint64_t live_ = 0, total_ = 0;
  std::uint64_t live_limit_, total_limit_;
};

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,       // dict.keys(), .values(), .items()
  kGenerator,  // the result of map, select and reject: true, without length, read once
  kNamespace,
  kFunction,  // a global
  kMethod,    // a method bound to its object
  kMacro,
  kLoop,
  kJoiner,
  kCycler,
};

struct Builtin;
class Value;
using Values = std::vector<Value>;

// The heap object of a value. `depth` is the nesting below it, bounded when containers are made, so that
// every recursion over values (text, JSON, comparison, destruction) is bounded too.
struct Object {
  Object(Heap& owner, std::size_t bytes) : heap(owner), charged(bytes) { heap.charge(bytes); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() { heap.release(charged); }
  Heap& heap;
  std::size_t charged;
  int depth = 1;
};

class Value {
 public:
  Value() = default;  // undefined, without a name
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.scalar_.integer = b;
    return v;
  }
  static Value integer(Integer i) {
    Value v(Kind::kInt);
    v.scalar_.integer = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::kFloat);
    v.scalar_.real = d;
    return v;
  }
  static Value object(Kind kind, std::shared_ptr<Object> object) {
    Value v(kind);
    v.object_ = std::move(object);
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  // Python's bool is an int.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return scalar_.integer != 0; }
  Integer as_integer() const { return scalar_.integer; }
  double as_real() const {
    return kind_ == Kind::kFloat ? scalar_.real : static_cast<double>(scalar_.integer);
  }
  const std::string& text() const;  // of a string

  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& object() const { return object_; }
  int depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  union {
    Integer integer = 0;
    double real;
  } scalar_;
  std::shared_ptr<Object> object_;
  Kind kind_ = Kind::kUndefined;
};

// Why a value is undefined; the sentence is only made when the value is used.
struct UndefinedObject : Object {
  UndefinedObject(Heap& owner, std::string text)
      : Object(owner, sizeof(UndefinedObject) + text.size()), reason(std::move(text)) {}
  std::string reason;
  bool unsafe = false;  // a refused attribute, not a missing one
};

struct StringObject : Object {
  StringObject(Heap& owner, std::string s);
  std::string text;        // valid UTF-8
  std::size_t characters;  // code points
  bool markup = false;     // the result of `escape` or `safe`: not escaped again
  bool ascii() const { return characters == text.size(); }
};

// Lists, tuples, generators and the three views of a dict.
struct ListObject : Object {
  ListObject(Heap& owner, Values values);
  Values items;
  std::size_t next = 0;       // a generator's place
  const char* type = "list";  // Python's name of the type
};

struct DictObject : Object {
  using Entry = std::pair<Value, Value>;
  DictObject(Heap& owner, std::vector<Entry> entries);
  const Value* find(std::string_view key) const;
  std::vector<Entry> entries;  // in insertion order, keys unique

 private:
  std::unordered_map<std::string_view, std::size_t> index_;  // only of dicts too long to scan
};

struct RangeObject : Object {
  RangeObject(Heap& owner, std::int64_t a, std::int64_t b, std::int64_t c)
      : Object(owner, sizeof(RangeObject)), start(a), stop(b), step(c) {}
  std::int64_t start, stop, step;
  std::int64_t size() const {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return start > stop ? (start - stop - 1) / -step + 1 : 0;
  }
};

struct NamespaceObject : Object {
  explicit NamespaceObject(Heap& owner) : Object(owner, sizeof(NamespaceObject)) {}
  std::vector<std::pair<std::string, Value>> fields;
};

struct FunctionObject : Object {
  FunctionObject(Heap& owner, const Builtin& entry, Value receiver)
      : Object(owner, sizeof(FunctionObject)), builtin(entry), self(std::move(receiver)) {
    depth = self.depth() + 1;
  }
  const Builtin& builtin;
  Value self;
};

struct JoinerObject : Object {
  JoinerObject(Heap& owner, Value sep) : Object(owner, sizeof(JoinerObject)), separator(std::move(sep)) {}
  Value separator;
  bool used = false;
};

struct CyclerObject : Object {
  CyclerObject(Heap& owner, Values values) : Object(owner, sizeof(CyclerObject)), items(std::move(values)) {}
  Values items;
  std::size_t position = 0;
};

inline const std::string& Value::text() const {
  return as<StringObject>().text;
}

}  // namespace doppler::chat::jinja
