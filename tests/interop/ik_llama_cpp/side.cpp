/*
 * ik_llama.cpp's side of `nncuda bench --model`: what python/nncuda/bench/model_worker.py is to the sides in Python.
 *
 *     ik_llama_cpp_side MODEL THREADS CONTEXT ROWS DEVICE
 *
 * It answers the lines of JSON that are described there. Weights are repacked for the processor, since that program is
 * fastest so; all else has its defaults (cache in f16, flash attention).
 */
#include "llama.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

using json = nlohmann::json;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct token_at {
  llama_token token;
  llama_pos position;
  llama_seq_id row;
  bool wanted; /* are its logits? */
};

class side {
public:
  side(const std::string &file, int threads, int context, int rows) {
    llama_backend_init();
    llama_model_params how = llama_model_default_params();
    how.repack_tensors = true;
    how.use_mmap = false; /* repacked weights are no file's */
    model_ = llama_model_load_from_file(file.c_str(), how);
    if (model_ == nullptr) {
      throw std::runtime_error("ik_llama.cpp cannot open " + file);
    }
    llama_context_params options = llama_context_default_params();
    options.n_ctx = (uint32_t)(context * rows); /* each sequence has its own part of the cache */
    options.n_seq_max = (uint32_t)rows;
    options.n_batch = (uint32_t)std::max(context, 512);
    options.n_threads = options.n_threads_batch = (uint32_t)threads;
    context_ = llama_init_from_model(model_, options);
    if (context_ == nullptr) {
      throw std::runtime_error("ik_llama.cpp makes no context for " + std::to_string(context) + " tokens of " +
                               std::to_string(rows) + " sequences");
    }
    vocabulary_ = llama_n_vocab(model_);
    batch_ = llama_batch_init((int32_t)options.n_batch, 0, 1);
  }

  json answer_to(const json &request) {
    const std::string method = request.at(0);
    if (method == "prefill") {
      return prefill(request.at(1));
    }
    if (method == "start") {
      return start(request.at(1));
    }
    if (method == "step") {
      return step(request.at(1));
    }
    if (method == "answer") {
      return answer(request.at(1), request.at(2));
    }
    throw std::runtime_error("there is no method " + method);
  }

private:
  using ids = std::vector<llama_token>;

  double prefill(const ids &prompt) {
    llama_kv_cache_clear(context_);
    const double began = now();
    read(0, prompt);
    logits(-1);
    return now() - began;
  }

  ids start(const std::vector<ids> &prompts) {
    llama_kv_cache_clear(context_);
    next_.clear();
    positions_.clear();
    for (size_t row = 0; row < prompts.size(); row++) {
      read((llama_seq_id)row, prompts[row]);
      next_.push_back(largest(-1));
      positions_.push_back((llama_pos)prompts[row].size());
    }
    return next_;
  }

  /* The seconds, and those of them that were spent outside the library. */
  json step(int count) {
    const double began = now();
    double inside = 0;
    for (int i = 0; i < count; i++) {
      std::vector<token_at> tokens;
      for (size_t row = 0; row < next_.size(); row++) {
        tokens.push_back({next_[row], positions_[row]++, (llama_seq_id)row, true});
      }
      const double entered = now();
      run(tokens);
      inside += now() - entered;
      for (size_t row = 0; row < next_.size(); row++) {
        next_[row] = largest((int32_t)row);
      }
    }
    const double seconds = now() - began;
    return {seconds, seconds - inside};
  }

  json answer(const ids &prompt, int count) {
    const double began = now();
    start({prompt});
    const double first = now() - began;
    step(count - 1);
    return {first, now() - began};
  }

  void read(llama_seq_id row, const ids &prompt) {
    std::vector<token_at> tokens;
    for (size_t i = 0; i < prompt.size(); i++) {
      tokens.push_back({prompt[i], (llama_pos)i, row, i + 1 == prompt.size()});
    }
    run(tokens);
  }

  void run(const std::vector<token_at> &tokens) {
    batch_.n_tokens = (int32_t)tokens.size();
    for (size_t i = 0; i < tokens.size(); i++) {
      batch_.token[i] = tokens[i].token;
      batch_.pos[i] = tokens[i].position;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = tokens[i].row;
      batch_.logits[i] = tokens[i].wanted;
    }
    if (const int32_t status = llama_decode(context_, batch_)) {
      throw std::runtime_error("llama_decode returned " + std::to_string(status));
    }
  }

  const float *logits(int32_t at) {
    const float *const found = llama_get_logits_ith(context_, at);
    if (found == nullptr) {
      throw std::runtime_error("there are no logits at " + std::to_string(at));
    }
    return found;
  }

  llama_token largest(int32_t at) {
    const float *const found = logits(at);
    return (llama_token)(std::max_element(found, found + vocabulary_) - found);
  }

  llama_model *model_ = nullptr;
  llama_context *context_ = nullptr;
  llama_batch batch_ = {};
  int32_t vocabulary_ = 0;
  ids next_;
  std::vector<llama_pos> positions_;
};

} // namespace

int main(int argc, char **argv) {
  /* Answers have the process's standard output for themselves: what the library prints goes elsewhere. */
  FILE *const answers = fdopen(dup(1), "w");
  dup2(2, 1);
  const auto say = [&](const char *kind, const json &content) {
    std::fprintf(answers, "%s\n", json({{kind, content}}).dump().c_str());
    std::fflush(answers);
  };
  llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
  try {
    if (argc != 6) {
      throw std::runtime_error("usage: ik_llama_cpp_side MODEL THREADS CONTEXT ROWS DEVICE");
    }
    if (std::string(argv[5]) != "cpu") {
      throw std::runtime_error("ik_llama.cpp is measured on the CPU, not on " + std::string(argv[5]));
    }
    const double began = now();
    side opened(argv[1], std::stoi(argv[2]), std::stoi(argv[3]), std::stoi(argv[4]));
    say("result", {{"name", IK_NAME}, {"seconds_to_load", now() - began}});
    for (std::string line; std::getline(std::cin, line);) {
      try {
        say("result", opened.answer_to(json::parse(line)));
      } catch (const std::exception &error) {
        say("error", error.what());
      }
    }
    std::fflush(answers);
    _exit(0); /* the system frees a model faster than its destructors */
  } catch (const std::exception &error) {
    say("error", error.what());
  }
  return 1;
}
