#include "plan/plan.h"

namespace pc {
namespace {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string line(const Plan& plan, std::size_t index) {
  const Step& step = plan.steps[index];
  const std::string number = std::to_string(index);
  std::string result(number.size() < 3 ? 3 - number.size() : 0, ' ');
  result += number + "  " + padded(std::string(name_of(step.kind)), 12) + operands(step);
  if (step.dst_weight + step.src_weight > 0) {
    result = padded(result, 40) + "  holds " + std::to_string(step.dst_weight) + " + " +
             std::to_string(step.src_weight) + " of " + std::to_string(plan.shape.size);
  }
  if (step.after > 0) result = padded(result, 40) + "  after step " + std::to_string(step.after - 1);
  if (plan.lanes > 1) result += "  lane " + std::to_string(step.lane);
  return result + "\n";
}

}  // namespace

std::string explain(const Plan& plan) {
  std::string result = "rank " + std::to_string(plan.shape.rank) + " of " + std::to_string(plan.shape.size) +
                       ", " + std::string(plan.algorithm) + " " + std::string(name_of(plan.shape.collective));
  if (plan.chunks > 0)
    result += ", " + std::to_string(plan.chunks) + (plan.chunks == 1 ? " chunk" : " chunks");
  if (plan.scratch_chunks > 0) result += ", " + std::to_string(plan.scratch_chunks) + " of scratch";
  result += plan.steps.empty() ? ", nothing to do\n" : "\n";
  for (std::size_t i = 0; i < plan.steps.size(); ++i) result += line(plan, i);
  return result;
}

}  // namespace pc
